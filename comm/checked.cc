#include "comm/checked.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <set>

#include "comm/post_pool.h"
#include "core/debug_env.h"
#include "core/hash.h"

namespace motley {
namespace {

constexpr int64_t kNoCount = -1;
constexpr int kNoRoot = -1;

/// What a rank calls, as the others see it: of the same size whatever it is, so that comparing it
/// cannot get stuck where the calls differ.
struct CallHead {
  uint64_t group = 0;   ///< of its members
  uint64_t number = 0;  ///< of the group's calls
  int64_t count = kNoCount;
  int32_t root = kNoRoot;
  int32_t any_count = 0;  ///< each rank may have another
  std::array<char, 40> operation{};
  std::array<char, 20> element{};

  bool same_call(const CallHead& other) const {
    return group == other.group && number == other.number && root == other.root &&
           (count == other.count || any_count != 0) && operation == other.operation &&
           element == other.element;
  }
};

/// What goes before a message.
struct MessageHead {
  int64_t bytes = 0;
};

template <size_t N>
void set_text(std::array<char, N>* to, const std::string& text) {
  std::copy_n(text.data(), std::min(text.size(), N - 1), to->data());
}

CallHead head_of(const std::string& operation, const char* element = "", int64_t count = kNoCount) {
  CallHead head{.count = count};
  set_text(&head.operation, operation);
  set_text(&head.element, element);
  return head;
}

const char* name_of_element(SumType type) {
  switch (type) {
    case SumType::kFloat32:
      return "float32";
    case SumType::kFloat64:
      return "float64";
    case SumType::kInt64:
      return "int64";
  }
  return "";
}

/// "all_reduce_sum of 40 float32"
std::string text_of(const CallHead& call) {
  std::string text = call.operation.data();
  if (call.element[0] != '\0') text += " of";
  if (call.count != kNoCount) text += " " + std::to_string(call.count);
  if (call.element[0] != '\0') text += " " + std::string(call.element.data());
  if (call.root != kNoRoot) text += " from " + std::to_string(call.root);
  return text;
}

/// "rank 2 calls … where rank 0 calls …"
std::string text_of_difference(const std::string& one, const CallHead& ones,
                               const std::string& other, const CallHead& others) {
  std::string first = text_of(ones);
  std::string second = text_of(others);
  if (ones.group != others.group) {
    first += " in another group";
  } else if (first == second) {
    first += " as call " + std::to_string(ones.number);
    second += " as call " + std::to_string(others.number);
  }
  return one + " calls " + first + " where " + other + " calls " + second;
}

class Checked final : public Communicator {
 public:
  Checked(std::unique_ptr<Communicator> inner, std::vector<int> ranks)
      : inner_(std::move(inner)),
        ranks_(std::move(ranks)),
        group_(xxh3_128(ranks_.data(), ranks_.size() * sizeof(int)).low) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string description() const override { return inner_->description(); }
  int64_t bytes_sent() const override { return inner_->bytes_sent() - head_bytes_; }
  void give_up(int exit_status) override { inner_->give_up(exit_status); }
  std::unique_ptr<Communicator> group(const std::vector<int>& ranks) override;

  Result<Unit> all_reduce_sum(std::span<float> inout) override { return sum(inout); }
  Result<Unit> all_reduce_sum(std::span<double> inout) override { return sum(inout); }
  Result<Unit> all_reduce_sum(std::span<int64_t> inout) override { return sum(inout); }
  Result<Unit> all_reduce_max(std::span<int64_t> inout) override {
    MOTLEY_TRY_VOID(compare(head_of("all_reduce_max", "int64", std::ssize(inout))));
    return inner_->all_reduce_max(inout);
  }
  Result<std::vector<std::string>> all_gather(const std::string& mine) override {
    CallHead head = head_of("all_gather", "bytes", std::ssize(mine));
    head.any_count = 1;
    MOTLEY_TRY_VOID(compare(head));
    return inner_->all_gather(mine);
  }
  Result<Unit> broadcast(std::string& data, int root) override {
    CallHead head = head_of("broadcast", "bytes", rank() == root ? std::ssize(data) : kNoCount);
    head.any_count = 1;
    head.root = root;
    MOTLEY_TRY_VOID(compare(head));
    return inner_->broadcast(data, root);
  }
  Result<Unit> barrier() override {
    MOTLEY_TRY_VOID(compare(head_of("barrier")));
    return inner_->barrier();
  }
  Result<Unit> exchange(std::span<const Incoming> receives, std::span<const Outgoing> sends,
                        const std::string& operation) override {
    MOTLEY_TRY_VOID(compare(head_of(operation)));
    return inner_->exchange(receives, sends, operation);
  }

  Result<Unit> send(std::span<const std::byte> data, int to) override {
    const MessageHead head{.bytes = std::ssize(data)};
    head_bytes_ += static_cast<int64_t>(sizeof head);
    MOTLEY_TRY_VOID(inner_->send(std::as_bytes(std::span(&head, 1)), to));
    return inner_->send(data, to);
  }
  Result<Unit> receive(std::span<std::byte> data, int from) override;
  Result<SendId> post(std::span<const std::byte> data, int to) override;
  Result<Unit> complete(SendId send) override;

  Result<std::unique_ptr<Reducer>> open_reducer(const ReductionPlan& plan, const Islands& islands,
                                                std::vector<std::vector<ElementRun>> runs) override;

  /// kInternal, the same on all ranks of the group, where one of them calls something else.
  Result<Unit> compare(CallHead mine);

 private:
  struct Post {
    MessageHead head;
    SendId head_send, data_send;
  };

  template <class T>
  Result<Unit> sum(std::span<T> inout) {
    MOTLEY_TRY_VOID(
        compare(head_of("all_reduce_sum", name_of_element(sum_type_of<T>()), std::ssize(inout))));
    return inner_->all_reduce_sum(inout);
  }
  std::unique_ptr<Checked> checked_group(const std::vector<int>& ranks);
  std::string name_of_rank(size_t rank) const { return "rank " + std::to_string(ranks_[rank]); }

  PostPool<Post> posts_;  ///< goes after the transport, which may still read the heads
  const std::unique_ptr<Communicator> inner_;
  const std::vector<int> ranks_;  ///< by their numbers in the whole, as errors name them
  const uint64_t group_;
  uint64_t calls_ = 0;
  int reducers_ = 0;
  int64_t head_bytes_ = 0;
  std::vector<CallHead> heads_;
  std::vector<Incoming> receives_;
  std::vector<Outgoing> sends_;
};

/// Begins as it is; who waits for it must all mean the same reduction: those who have a part in it,
/// as the others need not wait.
class CheckedReducer final : public Reducer {
 public:
  /// `ranks` are those; null: this one is none of them.
  CheckedReducer(std::unique_ptr<Reducer> inner, std::unique_ptr<Checked> ranks, int number,
                 int64_t elements)
      : ranks_(std::move(ranks)),
        inner_(std::move(inner)),
        operation_("reduction " + std::to_string(number)),
        elements_(elements) {}

  Result<Unit> begin(std::span<std::byte> flat, SumType type, ElementGate* gate) override {
    type_ = type;
    return inner_->begin(flat, type, gate);
  }
  Result<Unit> begin_beside(std::span<std::byte> flat, SumType type, ElementGate& gate) override {
    type_ = type;
    return inner_->begin_beside(flat, type, gate);
  }
  Result<Unit> wait() override {
    if (ranks_ == nullptr) return inner_->wait();
    const auto same = ranks_->compare(head_of(operation_, name_of_element(type_), elements_));
    if (same) return inner_->wait();
    inner_.reset();  // what it has begun beside is over, as after any wait
    return same;
  }
  /// Not compared: who asks for a part need not be in step with the others.
  Result<bool> wait_for(std::chrono::nanoseconds time) override { return inner_->wait_for(time); }
  int64_t bytes_sent() const override { return inner_ ? inner_->bytes_sent() : 0; }
  bool compresses() const override { return inner_ && inner_->compresses(); }
  void set_codec(const CodecSpec& codec) override {
    if (inner_) inner_->set_codec(codec);
  }
  void gather_residuals(std::span<float> flat) const override {
    if (inner_) inner_->gather_residuals(flat);
  }
  void restore_residuals(std::span<const float> flat) override {
    if (inner_) inner_->restore_residuals(flat);
  }

 private:
  const std::unique_ptr<Checked> ranks_;
  std::unique_ptr<Reducer> inner_;
  const std::string operation_;
  const int64_t elements_;
  SumType type_ = SumType::kFloat32;
};

std::vector<int> ranks_of(const ReductionPlan& plan) {
  std::set<int> ranks;
  for (const ReductionPart& part : plan.parts)
    for (const IslandPart& island : part.islands) {
      ranks.insert(island.contributors.begin(), island.contributors.end());
      ranks.insert(island.receivers.begin(), island.receivers.end());
    }
  return {ranks.begin(), ranks.end()};
}

Result<Unit> Checked::compare(CallHead mine) {
  if (size() == 1) return Unit{};
  mine.group = group_;
  mine.number = ++calls_;
  heads_.assign(static_cast<size_t>(size()), mine);
  receives_.clear();
  sends_.clear();
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    receives_.push_back(
        {peer, std::as_writable_bytes(std::span(&heads_[static_cast<size_t>(peer)], 1))});
    sends_.push_back({peer, std::as_bytes(std::span(&mine, 1))});
    head_bytes_ += static_cast<int64_t>(sizeof mine);
  }
  MOTLEY_TRY_VOID(inner_->exchange(receives_, sends_, mine.operation.data()));
  const auto other = std::find_if(heads_.begin(), heads_.end(),
                                  [&](const CallHead& head) { return !head.same_call(heads_[0]); });
  if (other == heads_.end()) return Unit{};
  // All have seen it: nobody ends the group before the last has got what it needs to say so.
  const auto rank = static_cast<size_t>(other - heads_.begin());
  const std::string difference =
      text_of_difference(name_of_rank(rank), *other, name_of_rank(0), heads_[0]);
  (void)inner_->barrier();
  return fail(ErrorCode::kInternal, difference);
}

std::unique_ptr<Communicator> Checked::group(const std::vector<int>& ranks) {
  return checked_group(ranks);
}

std::unique_ptr<Checked> Checked::checked_group(const std::vector<int>& ranks) {
  std::vector<int> of_the_whole;
  for (const int rank : ranks) of_the_whole.push_back(ranks_.at(static_cast<size_t>(rank)));
  return std::make_unique<Checked>(inner_->group(ranks), std::move(of_the_whole));
}

Result<SendId> Checked::post(std::span<const std::byte> data, int to) {
  const SendId id = posts_.open();
  Post& post = posts_.at(id);
  post.head.bytes = std::ssize(data);
  MOTLEY_TRY(post.head_send, inner_->post(std::as_bytes(std::span(&post.head, 1)), to));
  head_bytes_ += static_cast<int64_t>(sizeof post.head);
  MOTLEY_TRY(post.data_send, inner_->post(data, to));
  return id;
}

Result<Unit> Checked::complete(SendId send) {
  const Post& post = posts_.at(send);
  MOTLEY_TRY_VOID(inner_->complete(post.head_send));
  MOTLEY_TRY_VOID(inner_->complete(post.data_send));
  posts_.close(send);
  return Unit{};
}

Result<Unit> Checked::receive(std::span<std::byte> data, int from) {
  MessageHead head;
  MOTLEY_TRY_VOID(inner_->receive(std::as_writable_bytes(std::span(&head, 1)), from));
  if (head.bytes != std::ssize(data))
    return fail(ErrorCode::kInternal, name_of_rank(static_cast<size_t>(from)) + " sends " +
                                          std::to_string(head.bytes) + " bytes where " +
                                          name_of_rank(static_cast<size_t>(rank())) + " receives " +
                                          std::to_string(data.size()));
  return inner_->receive(data, from);
}

Result<std::unique_ptr<Reducer>> Checked::open_reducer(const ReductionPlan& plan,
                                                       const Islands& islands,
                                                       std::vector<std::vector<ElementRun>> runs) {
  MOTLEY_TRY_VOID(compare(head_of("open_reducer")));
  MOTLEY_TRY(auto reducer, inner_->open_reducer(plan, islands, std::move(runs)));
  const int64_t elements =
      std::accumulate(plan.parts.begin(), plan.parts.end(), int64_t{0},
                      [](int64_t sum, const ReductionPart& part) { return sum + part.elements; });
  const std::vector<int> with_a_part = ranks_of(plan);
  std::unique_ptr<Checked> those;
  if (std::binary_search(with_a_part.begin(), with_a_part.end(), rank()))
    those = checked_group(with_a_part);
  return std::make_unique<CheckedReducer>(std::move(reducer), std::move(those), ++reducers_,
                                          elements);
}

}  // namespace

bool collectives_are_checked() {
#ifdef NDEBUG
  return debug_env().debug == "collectives";
#else
  return true;
#endif
}

std::unique_ptr<Communicator> checked(std::unique_ptr<Communicator> inner) {
  std::vector<int> ranks(static_cast<size_t>(inner->size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return std::make_unique<Checked>(std::move(inner), std::move(ranks));
}

}  // namespace motley
