#include "tests/support/checked_posts.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace motley::testing {
namespace {

class CheckedPosts final : public Communicator {
 public:
  CheckedPosts(Communicator& inner, size_t* most_open, Posts posts)
      : inner_(inner), most_open_(most_open), posts_(posts) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  std::string description() const override { return inner_.description(); }
  int64_t bytes_sent() const override { return inner_.bytes_sent(); }
  void give_up(int exit_status) override { inner_.give_up(exit_status); }
  std::unique_ptr<Communicator> group(const std::vector<int>& ranks) override {
    return inner_.group(ranks);
  }
  Result<std::unique_ptr<Reducer>> open_reducer(
      const ReductionPlan& plan, const Islands& islands,
      std::vector<std::vector<ElementRun>> runs) override {
    return inner_.open_reducer(plan, islands, std::move(runs));
  }

  Result<Unit> all_reduce_sum(std::span<float> inout) override {
    return inner_.all_reduce_sum(inout);
  }
  Result<Unit> all_reduce_sum(std::span<double> inout) override {
    return inner_.all_reduce_sum(inout);
  }
  Result<Unit> all_reduce_sum(std::span<int64_t> inout) override {
    return inner_.all_reduce_sum(inout);
  }
  Result<Unit> all_reduce_max(std::span<int64_t> inout) override {
    return inner_.all_reduce_max(inout);
  }
  Result<std::vector<std::string>> all_gather(const std::string& mine) override {
    return inner_.all_gather(mine);
  }
  Result<Unit> broadcast(std::string& data, int root) override {
    return inner_.broadcast(data, root);
  }
  Result<Unit> barrier() override { return inner_.barrier(); }
  Result<Unit> send(std::span<const std::byte> data, int to) override {
    return inner_.send(data, to);
  }
  Result<Unit> receive(std::span<std::byte> data, int from) override {
    return inner_.receive(data, from);
  }
  Result<Unit> exchange(std::span<const Incoming> receives, std::span<const Outgoing> sends,
                        const std::string& operation) override {
    return inner_.exchange(receives, sends, operation);
  }

  Result<SendId> post(std::span<const std::byte> data, int to) override {
    if (posts_ == Posts::kBlocking) {
      MOTLEY_TRY_VOID(inner_.send(data, to));
      return SendId(0);
    }
    MOTLEY_TRY(const SendId id, inner_.post(data, to));
    open_[id.value()] = {data, {data.begin(), data.end()}};
    *most_open_ = std::max(*most_open_, open_.size());
    return id;
  }
  Result<Unit> complete(SendId send) override {
    if (posts_ == Posts::kBlocking) return Unit{};
    const Open& open = open_.at(send.value());
    if (!std::equal(open.data.begin(), open.data.end(), open.as_posted.begin()))
      return fail(ErrorCode::kInternal,
                  "rank " + std::to_string(rank()) + " changed data that it had posted");
    open_.erase(send.value());
    return inner_.complete(send);
  }

 private:
  struct Open {
    std::span<const std::byte> data;
    std::vector<std::byte> as_posted;
  };

  Communicator& inner_;
  size_t* const most_open_;
  const Posts posts_;
  std::map<int, Open> open_;  ///< by id
};

}  // namespace

std::unique_ptr<Communicator> checked_posts(Communicator& inner, size_t* most_open, Posts posts) {
  return std::make_unique<CheckedPosts>(inner, most_open, posts);
}

}  // namespace motley::testing
