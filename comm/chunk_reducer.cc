#include "comm/chunk_reducer.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <semaphore>
#include <stop_token>
#include <thread>

#include "comm/chunk_task.h"
#include "comm/link_residuals.h"
#include "comm/patience.h"
#include "core/check.h"
#include "core/reducer_memory.h"

namespace motley {
namespace {

/// Chunks it has a part in at a time, those it leads included.
constexpr size_t kUnderWay = 32;

std::vector<int> ranks_of(const Islands& islands, int island) {
  std::vector<int> ranks;
  for (size_t rank = 0; rank < islands.of_rank.size(); ++rank)
    if (islands.of_rank[rank] == island) ranks.push_back(static_cast<int>(rank));
  return ranks;
}

class ChunkReducer final : public Reducer {
 public:
  ChunkReducer(Transport& transport, const ReductionPlan& plan, const Islands& islands,
               std::vector<std::vector<ElementRun>> runs)
      : plan_(plan),
        runs_(std::move(runs)),
        sizes_(reducer_memory(plan, islands, transport.rank())),
        buffers_(sizes_.own_bytes()),
        site_{.transport = transport} {
    find_turns();
    site_.member_of = numbers_within(islands);
    if (plan_.compressed()) {
      site_.residuals = &residuals_.emplace(plan_, transport.rank());
      site_.codec = residuals_->codec();
    }
    for (auto i = static_cast<int>(sizes_.led); i-- > 0;) free_.push_back(i);
  }

  /// Collective over `ranks`.
  Result<Unit> join_island(Communicator& ranks, const Islands& islands);

  Result<Unit> begin(std::span<std::byte> flat, SumType type, ElementGate* gate) override;
  Result<Unit> begin_beside(std::span<std::byte> flat, SumType type, ElementGate& gate) override;
  Result<Unit> wait() override;
  Result<bool> wait_for(std::chrono::nanoseconds time) override;
  int64_t bytes_sent() const override { return site_.bytes_sent; }
  bool compresses() const override { return plan_.compressed(); }
  void set_codec(const CodecSpec& codec) override;
  void gather_residuals(std::span<float> flat) const override;
  void restore_residuals(std::span<const float> flat) override;

 private:
  struct UnderWay {
    std::unique_ptr<ChunkTask> task;
    int buffers = -1;  ///< of a leader
  };

  /// A chunk that this rank has a part in.
  struct Turn {
    ReductionTurn what;
    int home = 0;         ///< this rank's island among those of the part
    uint64_t number = 0;  ///< among all turns of the plan, from 1
  };

  static std::vector<int> numbers_within(const Islands& islands);
  void find_turns();
  Chunk chunk_of(const Turn& turn) const;
  Result<bool> admit();
  LeaderBuffers buffers(int number);
  Result<bool> advance_all();
  Result<Unit> move_on(const std::stop_token& stop);
  Result<Unit> still_patient(std::chrono::nanoseconds silence) const;

  const ReductionPlan plan_;
  const std::vector<std::vector<ElementRun>> runs_;
  const ReducerMemory sizes_;
  std::vector<std::byte> buffers_;
  std::unique_ptr<IslandMemory> memory_;
  std::optional<LinkResiduals> residuals_;  ///< where anything is compressed
  ReductionSite site_;

  std::vector<Turn> turns_;
  size_t next_turn_ = 0;
  uint64_t chunks_ = 0;  ///< of the plan, whoever has a part in them
  uint64_t reductions_ = 0;
  uint64_t chunks_before_ = 0;  ///< of earlier reductions
  int64_t contributions_ = 0;
  std::vector<int> free_;  ///< buffers
  std::deque<UnderWay> under_way_;

  Result<Unit> outcome_ = Unit{};
  std::atomic<bool> waited_for_ = false;
  std::binary_semaphore over_{0};  ///< what begin_beside() began
  /// Of begin_beside(): has all of the above until it ends, and ends before any of it goes.
  std::jthread thread_;
};

std::vector<int> ChunkReducer::numbers_within(const Islands& islands) {
  std::vector<int> next(static_cast<size_t>(islands.count()), 0);
  std::vector<int> numbers;
  for (const int island : islands.of_rank) numbers.push_back(next[static_cast<size_t>(island)]++);
  return numbers;
}

void ChunkReducer::find_turns() {
  for (const ReductionTurn& turn : plan_.turns()) {
    ++chunks_;
    const int home = plan_.parts[turn.part].home_of(site_.rank());
    if (home >= 0) turns_.push_back({turn, home, chunks_});
  }
  next_turn_ = turns_.size();
}

Result<Unit> ChunkReducer::join_island(Communicator& ranks, const Islands& islands) {
  if (sizes_.island.slot_bytes == 0) return Unit{};
  const int home = islands.of_rank[static_cast<size_t>(ranks.rank())];
  const auto island = ranks.group(ranks_of(islands, home));
  MOTLEY_TRY(memory_, IslandMemory::open(*island, sizes_.island));
  site_.memory = memory_.get();
  return Unit{};
}

Result<Unit> ChunkReducer::begin(std::span<std::byte> flat, SumType type, ElementGate* gate) {
  MOTLEY_CHECK(under_way_.empty() && next_turn_ == turns_.size(),
               "a reduction begins when the last one is over");
  MOTLEY_CHECK_EQ(bytes_of(type), plan_.element_bytes);
  MOTLEY_CHECK(!residuals_ || type == SumType::kFloat32, "only float32 is compressed");
  site_.flat = flat;
  site_.type = type;
  site_.gate = gate;
  next_turn_ = 0;
  chunks_before_ = chunks_ * reductions_++;
  return Unit{};
}

Chunk ChunkReducer::chunk_of(const Turn& turn) const {
  const ReductionPart& part = plan_.parts[turn.what.part];
  const int64_t first = turn.what.chunk * part.chunk_elements;
  const uint64_t tag = chunks_before_ + turn.number;
  return {.part = &part,
          .runs = &runs_[turn.what.part],
          .number = turn.what.chunk,
          .first = first,
          .count = part.elements_of(turn.what.chunk),
          .home = turn.home,
          .tag = tag,
          .message_tag = static_cast<int>(2 * (tag % (Transport::kMostTag / 2)))};
}

LeaderBuffers ChunkReducer::buffers(int number) {
  std::byte* at =
      buffers_.data() + static_cast<size_t>(number) * sizes_.for_each_led * sizes_.chunk;
  LeaderBuffers buffers;
  buffers.sum = at;
  buffers.total = at + sizes_.chunk;
  buffers.slot = number;
  size_t next = 2;
  if (plan_.compressed()) buffers.encoded = at + next++ * sizes_.chunk;
  while (next < sizes_.for_each_led) buffers.received.push_back(at + next++ * sizes_.chunk);
  return buffers;
}

/// Takes on the next chunk if there is room for it.
Result<bool> ChunkReducer::admit() {
  if (under_way_.size() >= kUnderWay) return false;
  if (next_turn_ == turns_.size()) return false;
  const Chunk chunk = chunk_of(turns_[next_turn_]);
  if (chunk.part->leader(chunk.home, chunk.number) == site_.rank()) {
    if (free_.empty()) return false;
    MOTLEY_TRY(auto task, leader_task(site_, chunk, buffers(free_.back())));
    under_way_.push_back({std::move(task), free_.back()});
    free_.pop_back();
  } else {
    const auto& contributors = chunk.island().contributors;
    const bool hands_in =
        std::binary_search(contributors.begin(), contributors.end(), site_.rank());
    under_way_.push_back({follower_task(site_, chunk, contributions_)});
    contributions_ += hands_in ? 1 : 0;
  }
  ++next_turn_;
  return true;
}

void ChunkReducer::set_codec(const CodecSpec& codec) {
  MOTLEY_CHECK(under_way_.empty(), "codecs change between reductions");
  if (!residuals_) return;
  site_.codec = codec;
  if (codec.kind != CodecKind::kOff) residuals_->set_codec(codec);
}

Result<bool> ChunkReducer::advance_all() {
  bool moved = false;
  for (UnderWay& one : under_way_) {
    if (one.task->done()) continue;
    MOTLEY_TRY(const bool this_one, one.task->advance());
    moved = moved || this_one;
    if (one.task->done() && one.buffers >= 0) free_.push_back(one.buffers);
  }
  while (!under_way_.empty() && under_way_.front().task->done()) under_way_.pop_front();
  return moved;
}

Result<Unit> ChunkReducer::begin_beside(std::span<std::byte> flat, SumType type,
                                        ElementGate& gate) {
  MOTLEY_CHECK(!thread_.joinable(), "a reduction begins when the last one is over");
  MOTLEY_TRY_VOID(begin(flat, type, &gate));
  waited_for_ = false;
  thread_ = std::jthread([this](const std::stop_token& stop) {
    outcome_ = move_on(stop);
    over_.release();
  });
  return Unit{};
}

Result<Unit> ChunkReducer::wait() {
  waited_for_ = true;
  if (!thread_.joinable()) return move_on({});
  over_.acquire();
  thread_.join();
  return outcome_;
}

Result<bool> ChunkReducer::wait_for(std::chrono::nanoseconds time) {
  if (!thread_.joinable()) return true;
  waited_for_ = true;
  if (!over_.try_acquire_for(time)) {
    waited_for_ = false;  // the caller has something to do again
    return false;
  }
  thread_.join();
  MOTLEY_TRY_VOID(outcome_);
  return true;
}

/// Silence counts from when somebody waits: before, this rank itself may have nothing to give.
Result<Unit> ChunkReducer::move_on(const std::stop_token& stop) {
  Patience patience;
  for (bool counts = false; !stop.stop_requested();) {
    MOTLEY_TRY(const bool admitted, admit());
    MOTLEY_TRY(const bool moved, advance_all());
    if (under_way_.empty() && next_turn_ == turns_.size()) return Unit{};
    if (admitted || moved || (waited_for_ && !std::exchange(counts, true))) {
      patience.something_happened();
      continue;
    }
    MOTLEY_TRY_VOID(site_.transport.alive());
    if (counts) MOTLEY_TRY_VOID(still_patient(patience.silence()));
    waited_for_ ? patience.pause() : patience.nap();
  }
  return fail(ErrorCode::kInternal, "a reduction was given up");
}

void ChunkReducer::gather_residuals(std::span<float> flat) const {
  if (residuals_) residuals_->gather(runs_, flat);
}

void ChunkReducer::restore_residuals(std::span<const float> flat) {
  if (residuals_) residuals_->restore(runs_, flat);
}

/// A quarter of the group's timeout more for every rank that may stand between this and the lost
/// one: by the oldest chunk, as who is held up there has no room for later ones. The oldest that
/// this rank leads tells best who is lost.
Result<Unit> ChunkReducer::still_patient(std::chrono::nanoseconds silence) const {
  const auto timeout = site_.transport.timeout();
  if (silence <= timeout) return Unit{};
  std::optional<ChunkWait> nearest;
  for (const UnderWay& one : under_way_) {
    if (one.task->done()) continue;
    ChunkWait wait = one.task->waits_for();
    if (!nearest) nearest = wait;
    if (wait.distance == kFollowersDistance) continue;
    nearest->whom = std::move(wait.whom);
    break;
  }
  if (!nearest) nearest = {"rank " + std::to_string(site_.rank()) + " itself", kFollowersDistance};
  if (silence <= timeout + timeout / 4 * nearest->distance) return Unit{};
  return fail(site_.transport.lost(nearest->whom + " did not answer in a reduction"));
}

/// That all have made the same plan of the same ranks.
Result<Unit> compare_plans(Communicator& ranks, const ReductionPlan& plan) {
  MOTLEY_TRY(const std::vector<std::string> hashes, ranks.all_gather(plan.hash()));
  for (size_t rank = 0; rank < hashes.size(); ++rank)
    if (hashes[rank] != hashes[0])
      return fail(ErrorCode::kInternal, "rank " + std::to_string(rank) +
                                            " plans other reductions (" + hashes[rank] +
                                            ") than rank 0 (" + hashes[0] + ")");
  return Unit{};
}

}  // namespace

Result<std::unique_ptr<Reducer>> open_chunk_reducer(Communicator& ranks, Transport& transport,
                                                    const ReductionPlan& plan,
                                                    const Islands& islands,
                                                    std::vector<std::vector<ElementRun>> runs) {
  MOTLEY_CHECK_EQ(runs.size(), plan.parts.size());
  MOTLEY_TRY_VOID(compare_plans(ranks, plan));
  auto reducer = std::make_unique<ChunkReducer>(transport, plan, islands, std::move(runs));
  MOTLEY_TRY_VOID(reducer->join_island(ranks, islands));
  return std::unique_ptr<Reducer>(std::move(reducer));
}

}  // namespace motley
