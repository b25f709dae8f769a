#include <atomic>
#include <chrono>

#include "tests/contract/communicator_contract.h"

namespace motley::testing {
namespace {

class Inproc : public ::testing::TestWithParam<std::tuple<int, NamedCheck>> {};

TEST_P(Inproc, KeepsTheContract) {
  const auto& [ranks, named] = GetParam();
  expect_ok(run_inproc(ranks, named.check));
}

INSTANTIATE_TEST_SUITE_P(Communicator, Inproc,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4, 5, 8),
                                            ::testing::ValuesIn(communicator_contract())),
                         [](const auto& instance) {
                           return std::get<1>(instance.param).name +
                                  std::to_string(std::get<0>(instance.param));
                         });

TEST(Solo, KeepsTheContract) {
  for (const NamedCheck& named : communicator_contract())
    expect_ok(named.check(*solo_communicator()));
}

TEST(InprocFailure, AnErringRankWakesAllOthersAndItsErrorIsReturned) {
  for (const int ranks : {2, 3, 8}) {
    std::atomic<int> woken = 0;
    const auto result = run_inproc(ranks, [&](Communicator& comm) -> Result<Unit> {
      std::vector<float> values(1000);
      Result<Unit> reduced = Unit{};
      for (int round = 0; reduced; ++round) {
        if (comm.rank() == 1 && round == 3) return fail(ErrorCode::kDeviceLost, "out of memory");
        reduced = comm.all_reduce_sum(std::span(values));
      }
      if (reduced.error().code == ErrorCode::kPeerLost) ++woken;
      return reduced;
    });
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().message, "out of memory");
    EXPECT_EQ(woken, ranks - 1);
  }
}

TEST(InprocFailure, ARankThatGivesUpWakesTheOthers) {
  const auto result = run_inproc(3, [](Communicator& comm) -> Result<Unit> {
    if (comm.rank() == 2) {
      comm.give_up(1);
      return Unit{};
    }
    return comm.barrier();
  });
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, ErrorCode::kPeerLost);
}

TEST(InprocFailure, SilenceEndsInPeerLostNamingRankAndOperation) {
  const auto result = run_inproc(2,
                                 [](Communicator& comm) -> Result<Unit> {
                                   if (comm.rank() == 1) return Unit{};  // leaves without a word
                                   return comm.barrier();
                                 },
                                 {.timeout = Nanos(20'000'000)});
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, ErrorCode::kPeerLost);
  EXPECT_EQ(result.error().message, "rank 1 did not answer in barrier");
}

}  // namespace
}  // namespace motley::testing
