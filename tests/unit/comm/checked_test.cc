#include "comm/checked.h"

#include <gtest/gtest.h>

#include <mutex>
#include <set>

namespace motley {
namespace {

const CommunicatorOptions kChecked{.timeout = Nanos(10'000'000'000), .checked = true};

using Body = std::function<Result<Unit>(Communicator&)>;

/// What every one of three ranks, of which rank 2 does something else, is told.
std::string told_by_all(const Body& usual, const Body& of_rank_2) {
  std::mutex mutex;
  std::set<std::string> told;
  int failures = 0;
  const auto done = run_inproc(
      3,
      [&](Communicator& comm) {
        const auto mine = (comm.rank() == 2 ? of_rank_2 : usual)(comm);
        const std::lock_guard lock(mutex);
        if (mine) return mine;
        EXPECT_EQ(mine.error().code, ErrorCode::kInternal);
        told.insert(mine.error().message);
        ++failures;
        return mine;
      },
      kChecked);
  EXPECT_EQ(failures, 3);
  EXPECT_EQ(told.size(), 1u);
  return told.empty() ? "" : *told.begin();
}

template <class T>
Body sum_of(size_t count) {
  return [count](Communicator& comm) {
    std::vector<T> values(count);
    return comm.all_reduce_sum(std::span(values));
  };
}

Result<Unit> barrier(Communicator& comm) { return comm.barrier(); }

Body broadcast_from(int root) {
  return [root](Communicator& comm) {
    std::string data = "twelve bytes";
    return comm.broadcast(data, root);
  };
}

TEST(Checked, CallsThatDifferAreNamedOnEveryRank) {
  EXPECT_EQ(told_by_all(barrier, sum_of<float>(40)),
            "rank 2 calls all_reduce_sum of 40 float32 where rank 0 calls barrier");
  EXPECT_EQ(
      told_by_all(broadcast_from(0), sum_of<float>(40)),
      "rank 2 calls all_reduce_sum of 40 float32 where rank 0 calls broadcast of 12 bytes from 0");
}

TEST(Checked, SoAreSizesElementsAndRoots) {
  EXPECT_EQ(
      told_by_all(sum_of<float>(40), sum_of<float>(0)),
      "rank 2 calls all_reduce_sum of 0 float32 where rank 0 calls all_reduce_sum of 40 float32");
  EXPECT_EQ(
      told_by_all(sum_of<int64_t>(40), sum_of<double>(40)),
      "rank 2 calls all_reduce_sum of 40 float64 where rank 0 calls all_reduce_sum of 40 int64");
  EXPECT_EQ(
      told_by_all(broadcast_from(0), broadcast_from(1)),
      "rank 2 calls broadcast of bytes from 1 where rank 0 calls broadcast of 12 bytes from 0");
}

TEST(Checked, SoIsAnotherGroup) {
  const auto in_a_group = [](Communicator& comm) { return comm.group({0, 1, 2})->barrier(); };
  const auto turned = [](Communicator& comm) { return comm.group({0, 2, 1})->barrier(); };
  EXPECT_EQ(told_by_all(in_a_group, turned),
            "rank 2 calls barrier in another group where rank 0 calls barrier");
  const auto again = [](Communicator& comm) -> Result<Unit> {
    const auto group = comm.group({0, 1, 2});
    MOTLEY_TRY_VOID(group->barrier());
    return group->barrier();
  };
  const auto anew = [](Communicator& comm) -> Result<Unit> {
    MOTLEY_TRY_VOID(comm.group({0, 1, 2})->barrier());
    return comm.group({0, 1, 2})->barrier();
  };
  EXPECT_EQ(told_by_all(again, anew),
            "rank 2 calls barrier as call 1 where rank 0 calls barrier as call 2");
}

/// Two reductions of unlike sizes are open; which one is begun, and of what.
Body reduction(int which, SumType type) {
  return [which, type](Communicator& comm) -> Result<Unit> {
    const Islands islands{
        .of_rank = {0, 0, 1}, .bytes_per_second = {1e8, 1e8}, .latency_seconds = 0};
    std::vector<std::unique_ptr<Reducer>> reducers;
    for (const int64_t elements : {100, 200}) {
      const ReductionPlan plan =
          plan_reduction({{{0, 1, 2}, {0, 1, 2}, std::nullopt, elements}}, islands, 8);
      MOTLEY_TRY(reducers.emplace_back(),
                 comm.open_reducer(plan, islands, {{{.offset = 0, .count = elements, .at = 0}}}));
    }
    std::vector<double> values(200);
    Reducer& reducer = *reducers[static_cast<size_t>(which)];
    MOTLEY_TRY_VOID(reducer.begin(std::as_writable_bytes(std::span(values)), type));
    return reducer.wait();
  };
}

TEST(Checked, ReductionsThatDifferAreNamed) {
  EXPECT_EQ(told_by_all(reduction(0, SumType::kInt64), reduction(0, SumType::kFloat64)),
            "rank 2 calls reduction 1 of 100 float64 where rank 0 calls reduction 1 of 100 int64");
  EXPECT_EQ(told_by_all(reduction(0, SumType::kInt64), reduction(1, SumType::kInt64)),
            "rank 2 calls reduction 2 of 200 int64 where rank 0 calls reduction 1 of 100 int64");
  EXPECT_EQ(told_by_all(reduction(0, SumType::kInt64),
                        [](Communicator& comm) -> Result<Unit> { return comm.barrier(); }),
            "rank 2 calls barrier where rank 0 calls open_reducer");
}

TEST(Checked, WhoHasNoPartInAReductionNeedNotWaitForIt) {
  const auto done = run_inproc(
      3,
      [](Communicator& comm) -> Result<Unit> {
        const Islands islands{.of_rank = {0, 0, 0}, .bytes_per_second = {1e9}};
        const ReductionPlan plan =
            plan_reduction({{{0, 2}, {0, 2}, std::nullopt, 40}}, islands, sizeof(float));
        const bool has_part = comm.rank() != 1;
        std::vector<std::vector<ElementRun>> runs(1);
        if (has_part) runs[0] = {{.offset = 0, .count = 40, .at = 0}};
        MOTLEY_TRY(const auto reducer, comm.open_reducer(plan, islands, runs));
        std::vector<float> values(40, 1.0F);
        if (has_part) {
          MOTLEY_TRY_VOID(
              reducer->begin(std::as_writable_bytes(std::span(values)), SumType::kFloat32));
          MOTLEY_TRY_VOID(reducer->wait());
          EXPECT_EQ(values[39], 2.0F);
        }
        return comm.barrier();
      },
      kChecked);
  EXPECT_TRUE(done) << done.error().to_string();
}

TEST(Checked, AMessageOfAnotherSizeIsNamedWhereItIsReceived) {
  for (const size_t sent : {0u, 12u}) {
    const auto done = run_inproc(
        2,
        [&](Communicator& comm) -> Result<Unit> {
          std::vector<std::byte> data(comm.rank() == 1 ? sent : 40);
          return comm.rank() == 1 ? comm.send(data, 0) : comm.receive(data, 1);
        },
        kChecked);
    ASSERT_FALSE(done.has_value());
    EXPECT_EQ(done.error().message,
              "rank 1 sends " + std::to_string(sent) + " bytes where rank 0 receives 40");
  }
}

TEST(Checked, ARankThatCallsNothingIsLost) {
  const auto done = run_inproc(
      2,
      [](Communicator& comm) { return comm.rank() == 1 ? Result<Unit>(Unit{}) : comm.barrier(); },
      {.timeout = Nanos(20'000'000), .checked = true});
  ASSERT_FALSE(done.has_value());
  EXPECT_EQ(done.error().code, ErrorCode::kPeerLost);
  EXPECT_EQ(done.error().message, "rank 1 did not answer in barrier");
}

}  // namespace
}  // namespace motley
