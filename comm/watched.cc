#include "comm/watched.h"

namespace motley {
namespace {

class Waiting {
 public:
  explicit Waiting(std::atomic<bool>& flag) : flag_(flag) {
    flag_ = true;
    flag_.notify_all();
  }
  ~Waiting() { flag_ = false; }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  std::atomic<bool>& flag_;
};

class WatchedReducer final : public Reducer {
 public:
  WatchedReducer(std::unique_ptr<Reducer> inner, std::atomic<bool>& waiting)
      : inner_(std::move(inner)), waiting_(waiting) {}

  Result<Unit> begin(std::span<std::byte> flat, SumType type, ElementGate* gate) override {
    return inner_->begin(flat, type, gate);
  }
  Result<Unit> begin_beside(std::span<std::byte> flat, SumType type, ElementGate& gate) override {
    return inner_->begin_beside(flat, type, gate);
  }
  Result<Unit> wait() override {
    const Waiting now(waiting_);
    return inner_->wait();
  }
  Result<bool> wait_for(std::chrono::nanoseconds time) override {
    const Waiting now(waiting_);
    return inner_->wait_for(time);
  }
  int64_t bytes_sent() const override { return inner_->bytes_sent(); }
  bool compresses() const override { return inner_->compresses(); }
  void set_codec(const CodecSpec& codec) override { inner_->set_codec(codec); }
  void gather_residuals(std::span<float> flat) const override { inner_->gather_residuals(flat); }
  void restore_residuals(std::span<const float> flat) override { inner_->restore_residuals(flat); }

 private:
  const std::unique_ptr<Reducer> inner_;
  std::atomic<bool>& waiting_;
};

class Watched final : public Communicator {
 public:
  Watched(Communicator& inner, std::atomic<bool>& waiting) : inner_(inner), waiting_(waiting) {}
  Watched(std::unique_ptr<Communicator> group, std::atomic<bool>& waiting)
      : owned_(std::move(group)), inner_(*owned_), waiting_(waiting) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  std::string description() const override { return inner_.description(); }
  int64_t bytes_sent() const override { return inner_.bytes_sent(); }
  void give_up(int exit_status) override { inner_.give_up(exit_status); }
  std::unique_ptr<Communicator> group(const std::vector<int>& ranks) override {
    return std::make_unique<Watched>(inner_.group(ranks), waiting_);
  }

  Result<Unit> all_reduce_sum(std::span<float> inout) override {
    const Waiting now(waiting_);
    return inner_.all_reduce_sum(inout);
  }
  Result<Unit> all_reduce_sum(std::span<double> inout) override {
    const Waiting now(waiting_);
    return inner_.all_reduce_sum(inout);
  }
  Result<Unit> all_reduce_sum(std::span<int64_t> inout) override {
    const Waiting now(waiting_);
    return inner_.all_reduce_sum(inout);
  }
  Result<Unit> all_reduce_max(std::span<int64_t> inout) override {
    const Waiting now(waiting_);
    return inner_.all_reduce_max(inout);
  }
  Result<std::vector<std::string>> all_gather(const std::string& mine) override {
    const Waiting now(waiting_);
    return inner_.all_gather(mine);
  }
  Result<Unit> broadcast(std::string& data, int root) override {
    const Waiting now(waiting_);
    return inner_.broadcast(data, root);
  }
  Result<Unit> barrier() override {
    const Waiting now(waiting_);
    return inner_.barrier();
  }
  Result<Unit> send(std::span<const std::byte> data, int to) override {
    const Waiting now(waiting_);
    return inner_.send(data, to);
  }
  Result<Unit> receive(std::span<std::byte> data, int from) override {
    const Waiting now(waiting_);
    return inner_.receive(data, from);
  }
  Result<SendId> post(std::span<const std::byte> data, int to) override {
    return inner_.post(data, to);
  }
  Result<Unit> complete(SendId send) override {
    const Waiting now(waiting_);
    return inner_.complete(send);
  }
  Result<Unit> exchange(std::span<const Incoming> receives, std::span<const Outgoing> sends,
                        const std::string& operation) override {
    const Waiting now(waiting_);
    return inner_.exchange(receives, sends, operation);
  }
  Result<std::unique_ptr<Reducer>> open_reducer(
      const ReductionPlan& plan, const Islands& islands,
      std::vector<std::vector<ElementRun>> runs) override {
    const Waiting now(waiting_);
    MOTLEY_TRY(auto reducer, inner_.open_reducer(plan, islands, std::move(runs)));
    return std::make_unique<WatchedReducer>(std::move(reducer), waiting_);
  }

 private:
  std::unique_ptr<Communicator> owned_;  ///< of a group
  Communicator& inner_;
  std::atomic<bool>& waiting_;
};

}  // namespace

std::unique_ptr<Communicator> watched(Communicator& inner, std::atomic<bool>& waiting) {
  return std::make_unique<Watched>(inner, waiting);
}

}  // namespace motley
