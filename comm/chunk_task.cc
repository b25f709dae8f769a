#include "comm/chunk_task.h"

#include <algorithm>
#include <cstring>

#include "comm/element_sums.h"

namespace motley {
namespace {

/// Calls body(run) for what of the runs is in the chunk, by rising number.
template <class Body>
void each_run_of(const Chunk& chunk, Body body) {
  const int64_t end = chunk.first + chunk.count;
  auto run = std::partition_point(
      chunk.runs->begin(), chunk.runs->end(),
      [&](const ElementRun& other) { return other.at + other.count <= chunk.first; });
  for (; run != chunk.runs->end() && run->at < end; ++run) {
    const int64_t begin = std::max(run->at, chunk.first);
    body(ElementRun{.offset = run->offset + (begin - run->at),
                    .count = std::min(run->at + run->count, end) - begin,
                    .at = begin});
  }
}

bool has(const std::vector<int>& ranks, int rank) {
  return std::binary_search(ranks.begin(), ranks.end(), rank);
}

class Follower final : public ChunkTask {
 public:
  Follower(ReductionSite& site, const Chunk& chunk, int64_t order)
      : ChunkTask(site, chunk),
        leader_(chunk.part->leader(chunk.home, chunk.number)),
        order_(order),
        hands_in_(has(chunk.island().contributors, site.rank())),
        receives_(has(chunk.island().receivers, site.rank())) {}

  Result<bool> advance() override {
    if (hands_in_) return hand_in();
    if (receives_) return receive();
    return false;
  }
  bool done() const override { return !hands_in_ && !receives_; }
  std::string waits_for() const override {
    return "rank " + std::to_string(leader_) + (hands_in_ ? " (contribute)" : " (receive)");
  }

 private:
  /// Contributions go in their order: a later chunk never takes the slot that an earlier one needs.
  Result<bool> hand_in() {
    if (site_.handed_in != order_) return false;
    const auto slot = site_.memory->contribution(site_.member(),
                                                 static_cast<int>(order_ % site_.memory->slots()));
    if (slot.tag.load(std::memory_order_acquire) != 0) return false;
    MOTLEY_TRY(const bool readable, site_.readable(chunk_));
    if (!readable) return false;
    site_.gather(chunk_, slot.data);
    slot.tag.store(chunk_.tag, std::memory_order_release);
    ++site_.handed_in;
    hands_in_ = false;
    return true;
  }

  /// What is only received must not be in anybody else's hands either.
  Result<bool> ask_for_it() {
    MOTLEY_TRY(untouched_, site_.readable(chunk_));
    return untouched_;
  }

  Result<bool> receive() {
    if (!untouched_) return ask_for_it();
    const int member = site_.member_of[static_cast<size_t>(leader_)];
    const int found = site_.memory->find_total(member, chunk_.tag);
    if (found < 0) return false;
    const auto slot = site_.memory->total(member, found);
    site_.scatter(chunk_, slot.data);
    slot.readers.fetch_sub(1, std::memory_order_release);
    receives_ = false;
    MOTLEY_TRY_VOID(site_.written(chunk_));
    return true;
  }

  const int leader_;
  const int64_t order_;
  bool hands_in_, receives_;
  bool untouched_ = hands_in_;  ///< asked for already
};

class Leader final : public ChunkTask {
 public:
  Leader(ReductionSite& site, const Chunk& chunk, const LeaderBuffers& buffers)
      : ChunkTask(site, chunk), buffers_(buffers) {}
  ~Leader() override {
    for (const Transfer& open : transfers_) site_.transport.abandon(open.id);
  }

  /// Receives are posted as early as there is memory for them.
  Result<Unit> open();
  Result<bool> advance() override;
  bool done() const override { return state_ == State::kDone; }
  std::string waits_for() const override;

 private:
  enum class State { kContribute, kAcross, kHandOut, kSending, kDone };
  struct Transfer {
    SendId id;
    int peer = 0;
    bool incoming = false;
  };

  bool contributes(int which) const { return !of(which).contributors.empty(); }
  bool receives(int which) const { return !of(which).receivers.empty(); }
  const IslandPart& of(int which) const { return chunk_.part->islands[static_cast<size_t>(which)]; }
  int leader(int which) const { return chunk_.part->leader(which, chunk_.number); }
  bool alone() const { return chunk_.islands() == 1; }
  bool is_root() const { return !chunk_.part->direct() && root() == chunk_.home; }
  int root() const { return chunk_.part->root(chunk_.number); }
  template <class Body>
  Result<Unit> each_other_island(Body body);

  Result<Unit> expect(int which, bool something, std::byte* into, int tag);
  Result<Unit> send(int which, const std::byte* data, int tag);
  Result<bool> contribute();
  Result<bool> poll_transfers();
  bool open_transfers(bool incoming_only) const;
  Result<bool> across();
  Result<Unit> hand_on();
  bool all_handed_in();
  void list_contributions();
  void free_contributions();
  void add_up();
  int other_receivers() const;
  bool place_is_free() const;
  std::byte* place_for_total() const;
  Result<bool> hand_out();

  const LeaderBuffers buffers_;
  State state_ = State::kContribute;
  std::vector<int> slots_;  ///< of the others' contributions, by rising rank
  std::vector<Transfer> transfers_;
  const std::byte* sum_ = nullptr;  ///< of this island; null: it contributes nothing
  const std::byte* total_ = nullptr;
  std::vector<const std::byte*> terms_;
  std::byte token_{1};  ///< what travels where there is nothing to say but that one is ready
};

template <class Body>
Result<Unit> Leader::each_other_island(Body body) {
  for (int which = 0; which < chunk_.islands(); ++which)
    if (which != chunk_.home) MOTLEY_TRY_VOID(body(which));
  return Unit{};
}

Result<Unit> Leader::expect(int which, bool something, std::byte* into, int tag) {
  const int peer = leader(which);
  MOTLEY_TRY(const SendId id,
             site_.transport.begin(
                 Incoming{peer, std::span(into, something ? site_.bytes(chunk_) : 1)}, tag));
  transfers_.push_back({id, peer, true});
  return Unit{};
}

/// Null: the token.
Result<Unit> Leader::send(int which, const std::byte* data, int tag) {
  const int peer = leader(which);
  const auto bytes = data == nullptr ? std::span<const std::byte>(&token_, 1)
                                     : std::span(data, site_.bytes(chunk_));
  MOTLEY_TRY(const SendId id, site_.transport.begin(Outgoing{peer, bytes}, tag));
  transfers_.push_back({id, peer, false});
  site_.bytes_sent += static_cast<int64_t>(bytes.size());
  return Unit{};
}

Result<Unit> Leader::open() {
  if (alone()) return Unit{};
  if (chunk_.part->direct() || is_root()) {
    size_t next = 0;
    return each_other_island([&](int which) {
      return expect(which, contributes(which), buffers_.received[next++], chunk_.message_tag);
    });
  }
  return expect(root(), receives(chunk_.home), buffers_.received[0], chunk_.message_tag + 1);
}

Result<bool> Leader::advance() {
  switch (state_) {
    case State::kContribute:
      return contribute();
    case State::kAcross:
      return across();
    case State::kHandOut:
      return hand_out();
    case State::kSending: {
      MOTLEY_TRY(const bool moved, poll_transfers());
      if (transfers_.empty()) state_ = State::kDone;
      return moved || transfers_.empty();
    }
    case State::kDone:
      return false;
  }
  return false;
}

/// The island's sum; within one island that is the total.
Result<bool> Leader::contribute() {
  if (alone() && !place_is_free()) return false;
  if (!all_handed_in()) return false;
  MOTLEY_TRY(const bool readable, site_.readable(chunk_));
  if (!readable) return false;
  list_contributions();
  if (alone()) {
    add_up();
  } else if (terms_.size() == 1 && slots_.empty()) {
    sum_ = terms_[0];
  } else if (!terms_.empty()) {
    sum_elements(site_.type, buffers_.sum, terms_, chunk_.count);
    sum_ = buffers_.sum;
  }
  free_contributions();
  state_ = alone() ? State::kHandOut : State::kAcross;
  MOTLEY_TRY_VOID(hand_on());
  return true;
}

/// Asked again and again: what was found once is not looked for any more.
bool Leader::all_handed_in() {
  size_t next = 0;
  for (const int rank : chunk_.island().contributors) {
    if (rank == site_.rank()) continue;
    if (next++ < slots_.size()) continue;
    const int member = site_.member_of[static_cast<size_t>(rank)];
    const int slot = site_.memory->find_contribution(member, chunk_.tag);
    if (slot < 0) return false;
    slots_.push_back(slot);
  }
  return true;
}

void Leader::list_contributions() {
  terms_.clear();
  auto slot = slots_.begin();
  for (const int rank : chunk_.island().contributors) {
    if (rank != site_.rank()) {
      const int member = site_.member_of[static_cast<size_t>(rank)];
      terms_.push_back(site_.memory->contribution(member, *slot++).data);
    } else if (const std::byte* const lies = site_.in_place(chunk_)) {
      terms_.push_back(lies);
    } else {
      site_.gather(chunk_, buffers_.sum);
      terms_.push_back(buffers_.sum);
    }
  }
}

void Leader::free_contributions() {
  auto slot = slots_.begin();
  for (const int rank : chunk_.island().contributors) {
    if (rank == site_.rank()) continue;
    const int member = site_.member_of[static_cast<size_t>(rank)];
    site_.memory->contribution(member, *slot++).tag.store(0, std::memory_order_release);
  }
}

/// The island's sum, to all or to the root.
Result<Unit> Leader::hand_on() {
  if (alone() || is_root()) return Unit{};
  if (!chunk_.part->direct()) return send(root(), sum_, chunk_.message_tag);
  return each_other_island([&](int which) { return send(which, sum_, chunk_.message_tag); });
}

Result<bool> Leader::poll_transfers() {
  bool moved = false;
  for (size_t i = 0; i < transfers_.size();) {
    MOTLEY_TRY(const bool finished, site_.transport.finished(transfers_[i].id));
    if (!finished) {
      ++i;
      continue;
    }
    transfers_[i] = transfers_.back();
    transfers_.pop_back();
    moved = true;
  }
  return moved;
}

bool Leader::open_transfers(bool incoming_only) const {
  return std::any_of(transfers_.begin(), transfers_.end(),
                     [&](const Transfer& transfer) { return transfer.incoming || !incoming_only; });
}

Result<bool> Leader::across() {
  MOTLEY_TRY(const bool moved, poll_transfers());
  const bool receiver = has(chunk_.island().receivers, site_.rank());
  // What is being sent from where it lies stays as it is until it has left.
  const bool overwrites = receiver && sum_ != nullptr && sum_ == site_.in_place(chunk_);
  if (open_transfers(!overwrites) || !place_is_free()) return moved;
  terms_.clear();
  if (!chunk_.part->direct() && !is_root()) {
    if (receives(chunk_.home)) terms_.push_back(buffers_.received[0]);
  } else {
    size_t next = 0;
    for (int which = 0; which < chunk_.islands(); ++which) {
      const std::byte* const term = which == chunk_.home ? sum_ : buffers_.received[next++];
      if (contributes(which)) terms_.push_back(term);
    }
  }
  if (!terms_.empty()) add_up();
  if (is_root())
    MOTLEY_TRY_VOID(each_other_island([&](int which) {
      return send(which, receives(which) ? total_ : nullptr, chunk_.message_tag + 1);
    }));
  state_ = State::kHandOut;
  return true;
}

int Leader::other_receivers() const {
  const std::vector<int>& receivers = chunk_.island().receivers;
  return static_cast<int>(receivers.size()) - (has(receivers, site_.rank()) ? 1 : 0);
}

/// The last total in the slot may still be read.
bool Leader::place_is_free() const {
  return other_receivers() == 0 || site_.memory->total(site_.member(), buffers_.slot)
                                           .readers.load(std::memory_order_acquire) == 0;
}

std::byte* Leader::place_for_total() const {
  if (other_receivers() > 0) return site_.memory->total(site_.member(), buffers_.slot).data;
  std::byte* const lies = site_.in_place(chunk_);
  const bool receiver = has(chunk_.island().receivers, site_.rank());
  return receiver && lies != nullptr ? lies : buffers_.total;
}

void Leader::add_up() {
  std::byte* const place = place_for_total();
  if (terms_.size() == 1 && place == buffers_.total) {
    total_ = terms_[0];
    return;
  }
  sum_elements(site_.type, place, terms_, chunk_.count);
  total_ = place;
}

Result<bool> Leader::hand_out() {
  if (const int others = other_receivers(); others > 0) {
    const auto slot = site_.memory->total(site_.member(), buffers_.slot);
    slot.readers.store(others, std::memory_order_relaxed);
    slot.tag.store(chunk_.tag, std::memory_order_release);
  }
  if (has(chunk_.island().receivers, site_.rank())) {
    if (total_ != site_.in_place(chunk_)) site_.scatter(chunk_, total_);
    MOTLEY_TRY_VOID(site_.written(chunk_));
  }
  state_ = State::kSending;
  return true;
}

std::string Leader::waits_for() const {
  if (state_ == State::kContribute) {
    for (const int rank : chunk_.island().contributors) {
      if (rank == site_.rank()) continue;
      const int member = site_.member_of[static_cast<size_t>(rank)];
      if (site_.memory->find_contribution(member, chunk_.tag) < 0)
        return "rank " + std::to_string(rank) + " (contribute)";
    }
    return "rank " + std::to_string(site_.rank()) + " itself (contribute)";
  }
  for (const Transfer& transfer : transfers_)
    if (transfer.incoming || state_ == State::kSending)
      return "rank " + std::to_string(transfer.peer) + " (across)";
  return "the ranks of its host (receive)";
}

}  // namespace

std::vector<ElementRun> ReductionSite::runs_of(const Chunk& chunk) {
  std::vector<ElementRun> runs;
  each_run_of(chunk, [&](const ElementRun& run) { runs.push_back(run); });
  return runs;
}

Result<bool> ReductionSite::readable(const Chunk& chunk) const {
  return gate == nullptr ? Result<bool>(true) : gate->readable(runs_of(chunk));
}

Result<Unit> ReductionSite::written(const Chunk& chunk) const {
  return gate == nullptr ? Result<Unit>(Unit{}) : gate->written(runs_of(chunk));
}

std::byte* ReductionSite::in_place(const Chunk& chunk) const {
  int64_t offset = -1;
  each_run_of(chunk, [&](const ElementRun& run) {
    if (run.count == chunk.count) offset = run.offset;
  });
  return offset < 0 ? nullptr : flat.data() + offset * bytes_of(type);
}

void ReductionSite::gather(const Chunk& chunk, std::byte* to) const {
  each_run_of(chunk, [&](const ElementRun& run) {
    std::memcpy(to + (run.at - chunk.first) * bytes_of(type),
                flat.data() + run.offset * bytes_of(type),
                static_cast<size_t>(run.count * bytes_of(type)));
  });
}

void ReductionSite::scatter(const Chunk& chunk, const std::byte* from) const {
  each_run_of(chunk, [&](const ElementRun& run) {
    std::memcpy(flat.data() + run.offset * bytes_of(type),
                from + (run.at - chunk.first) * bytes_of(type),
                static_cast<size_t>(run.count * bytes_of(type)));
  });
}

std::unique_ptr<ChunkTask> follower_task(ReductionSite& site, const Chunk& chunk, int64_t order) {
  return std::make_unique<Follower>(site, chunk, order);
}

Result<std::unique_ptr<ChunkTask>> leader_task(ReductionSite& site, const Chunk& chunk,
                                               const LeaderBuffers& buffers) {
  auto leader = std::make_unique<Leader>(site, chunk, buffers);
  MOTLEY_TRY_VOID(leader->open());
  return std::unique_ptr<ChunkTask>(std::move(leader));
}

}  // namespace motley
