#include <atomic>
#include <chrono>
#include <thread>

#include "comm/watched.h"
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

class CheckedInproc : public Inproc {};

TEST_P(CheckedInproc, KeepsTheContract) {
  const auto& [ranks, named] = GetParam();
  expect_ok(run_inproc(ranks, named.check, {.checked = true}));
}

INSTANTIATE_TEST_SUITE_P(Communicator, CheckedInproc,
                         ::testing::Combine(::testing::Values(1, 3),
                                            ::testing::ValuesIn(communicator_contract())),
                         [](const auto& instance) {
                           return std::get<1>(instance.param).name +
                                  std::to_string(std::get<0>(instance.param));
                         });

class WatchedInproc : public Inproc {};

TEST_P(WatchedInproc, KeepsTheContract) {
  const auto& [ranks, named] = GetParam();
  expect_ok(run_inproc(ranks, [&check = named.check](Communicator& comm) {
    std::atomic<bool> waiting = false;
    return check(*watched(comm, waiting));
  }));
}

INSTANTIATE_TEST_SUITE_P(Communicator, WatchedInproc,
                         ::testing::Combine(::testing::Values(1, 3),
                                            ::testing::ValuesIn(communicator_contract())),
                         [](const auto& instance) {
                           return std::get<1>(instance.param).name +
                                  std::to_string(std::get<0>(instance.param));
                         });

TEST(Watched, TellsThatItsRankWaitsForAnother) {
  std::atomic<bool> waiting = false;
  expect_ok(run_inproc(2, [&](Communicator& comm) -> Result<Unit> {
    if (comm.rank() == 0) return watched(comm, waiting)->barrier();
    waiting.wait(false);
    return comm.barrier();
  }));
  EXPECT_FALSE(waiting);
}

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

/// Of two ranks on so many hosts, rank 1 never takes part.
Result<Unit> sum_without_rank_1(Communicator& comm, int hosts) {
  const Islands islands{.of_rank = {0, hosts - 1},
                        .bytes_per_second = std::vector<double>(static_cast<size_t>(hosts), 1e8),
                        .latency_seconds = 0};
  const ReductionPlan plan =
      plan_reduction({{{0, 1}, {0, 1}, std::nullopt, 50'000}}, islands, sizeof(float));
  MOTLEY_TRY(const auto reducer,
             comm.open_reducer(plan, islands, {{{.offset = 0, .count = 50'000, .at = 0}}}));
  if (comm.rank() == 1) return Unit{};
  std::vector<float> values(50'000);
  MOTLEY_TRY_VOID(reducer->begin(std::as_writable_bytes(std::span(values)), SumType::kFloat32));
  return reducer->wait();
}

TEST(InprocFailure, ASumThatARankStaysAwayFromNamesItAndThePhase) {
  for (const auto& [hosts, phase] : {std::pair(1, "contribute"), std::pair(2, "across")}) {
    const auto result = run_inproc(
        2, [hosts = hosts](Communicator& comm) { return sum_without_rank_1(comm, hosts); },
        {.timeout = Nanos(50'000'000), .checked = false});
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().code, ErrorCode::kPeerLost);
    EXPECT_EQ(result.error().message,
              std::string("rank 1 (") + phase + ") did not answer in a reduction");
  }
}

const Islands kTwoHosts{
    .of_rank = {0, 0, 1, 1}, .bytes_per_second = {1e8, 1e8}, .latency_seconds = 0};

ReductionPlan sum_over_two_hosts(int64_t elements) {
  return plan_reduction({{{0, 1, 2, 3}, {0, 1, 2, 3}, std::nullopt, elements}}, kTwoHosts,
                        sizeof(float));
}

/// Ranks 0 and 1 wait for rank 2, which waits for rank 3: who stands next to it speaks first.
TEST(InprocFailure, AllWhoWaitInARowNameTheRankAtItsEnd) {
  std::atomic<int> survivors = 0;
  const auto result = run_inproc(
      4,
      [&](Communicator& comm) -> Result<Unit> {
        MOTLEY_TRY(const auto reducer,
                   comm.open_reducer(sum_over_two_hosts(200'000), kTwoHosts,
                                     {{{.offset = 0, .count = 200'000, .at = 0}}}));
        if (comm.rank() == 3) return Unit{};
        std::vector<float> values(200'000);
        MOTLEY_TRY_VOID(
            reducer->begin(std::as_writable_bytes(std::span(values)), SumType::kFloat32));
        const auto done = reducer->wait();
        if (!done && done.error().message == "rank 3 (contribute) did not answer in a reduction")
          ++survivors;
        return done;
      },
      {.timeout = Nanos(400'000'000), .checked = false});
  EXPECT_FALSE(result.has_value());
  EXPECT_EQ(survivors, 3);
}

/// Gives what others lead, and nothing of what it leads itself: then it is gone, until `gone` says.
class LeadsNothing final : public ElementGate {
 public:
  LeadsNothing(const ReductionPart& part, std::function<void()> gone)
      : part_(part), gone_(std::move(gone)) {}
  Result<bool> readable(std::span<const ElementRun> runs) override {
    if (part_.leader(1, runs[0].at / part_.chunk_elements) != 2) return ++given_ > 0;
    if (given_ >= kChunksLed) gone_();
    return false;
  }
  Result<Unit> written(std::span<const ElementRun>) override { return Unit{}; }

 private:
  const ReductionPart& part_;
  std::function<void()> gone_;
  int given_ = 0;
};

/// Rank 0 waits for rank 2, and has no room for what rank 1 waits for: rank 1 must not blame it.
TEST(InprocFailure, WhoIsHeldUpByALostRankIsNotTakenForIt) {
  std::atomic<int> survivors = 0;
  const auto result = run_inproc(
      4,
      [&](Communicator& comm) -> Result<Unit> {
        const ReductionPlan plan = sum_over_two_hosts(2'000'000);
        EXPECT_GT(plan.parts[0].chunks(), 2 * kChunksLed + 2);
        MOTLEY_TRY(const auto reducer, comm.open_reducer(plan, kTwoHosts, {{{0, 2'000'000, 0}}}));
        std::vector<float> values(2'000'000);
        LeadsNothing gate(plan.parts[0], [&] {
          while (survivors < 3) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        });
        MOTLEY_TRY_VOID(reducer->begin(std::as_writable_bytes(std::span(values)), SumType::kFloat32,
                                       comm.rank() == 2 ? &gate : nullptr));
        const auto done = reducer->wait();
        if (comm.rank() == 2) return done;
        EXPECT_FALSE(done.has_value());
        if (!done) {
          EXPECT_EQ(done.error().message, "rank 2 (across) did not answer in a reduction");
        }
        ++survivors;
        return done;
      },
      {.timeout = Nanos(400'000'000), .checked = false});
  EXPECT_FALSE(result.has_value());
}

TEST(InprocFailure, ASumWhoseRankFailsWakesTheOther) {
  const auto result = run_inproc(2, [](Communicator& comm) -> Result<Unit> {
    const auto done = sum_without_rank_1(comm, 2);
    if (comm.rank() == 1) return fail(ErrorCode::kDeviceLost, "out of memory");
    EXPECT_FALSE(done.has_value());
    return done;
  });
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().message, "out of memory");
}

TEST(InprocFailure, OtherPlansOfTheSameSumAreRefusedNamingARank) {
  const auto result = run_inproc(3, [](Communicator& comm) -> Result<Unit> {
    const Islands islands{
        .of_rank = {0, 1, 1}, .bytes_per_second = {1e8, 1e8}, .latency_seconds = 0};
    const int64_t elements = comm.rank() == 2 ? 1001 : 1000;
    const ReductionPlan plan =
        plan_reduction({{{0, 1, 2}, {0, 1, 2}, std::nullopt, elements}}, islands, sizeof(float));
    MOTLEY_TRY(const auto reducer,
               comm.open_reducer(plan, islands, {{{.offset = 0, .count = elements, .at = 0}}}));
    return Unit{};
  });
  ASSERT_FALSE(result.has_value());
  EXPECT_NE(result.error().message.find("rank 2 plans other reductions"), std::string::npos)
      << result.error().message;
}

/// Rank 1 fails; the others, wherever that meets them, have sends open to it and to each other.
Result<Unit> post_until_a_peer_is_lost(Communicator& comm) {
  std::vector<std::byte> data(5000);  // goes before the communicator does
  if (comm.rank() == 1) {
    MOTLEY_TRY_VOID(comm.receive(data, 0));
    return fail(ErrorCode::kDeviceLost, "out of memory");
  }
  MOTLEY_TRY(const SendId arrives, comm.post(data, comm.rank() == 0 ? 1 : 0));
  MOTLEY_TRY_VOID(comm.post(data, 1));
  MOTLEY_TRY(const SendId stays, comm.post(data, comm.rank() == 0 ? 2 : 1));
  if (comm.rank() == 0) MOTLEY_TRY_VOID(comm.complete(arrives));
  return comm.complete(stays);
}

TEST(InprocFailure, ALostPeerEndsOpenSendsAndFreesTheirMemory) {
  std::atomic<int> lost = 0;
  const auto result = run_inproc(3, [&](Communicator& comm) {
    const auto done = post_until_a_peer_is_lost(comm);
    if (!done && done.error().code == ErrorCode::kPeerLost) ++lost;
    EXPECT_TRUE(comm.rank() == 1 || !comm.post(std::vector<std::byte>(1), 1));
    return done;
  });
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().message, "out of memory");
  EXPECT_EQ(lost, 2);
}

TEST(InprocFailure, WhoGivesUpTakesBackItsOpenSends) {
  const auto result = run_inproc(2, [](Communicator& comm) -> Result<Unit> {
    std::vector<std::byte> data(1'000'000);
    if (comm.rank() == 1) {  // as many as get through, while the other's memory goes
      Result<Unit> received = Unit{};
      while (received) received = comm.receive(data, 0);
      return received;
    }
    for (int i = 0; i < 20; ++i) MOTLEY_TRY_VOID(comm.post(data, 1));
    comm.give_up(1);
    return Unit{};
  });
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().message, "rank 0 gave up");
}

TEST(InprocFailure, ASendNobodyReceivesEndsInPeerLost) {
  const auto result = run_inproc(2,
                                 [](Communicator& comm) -> Result<Unit> {
                                   if (comm.rank() == 1) return Unit{};
                                   const std::vector<std::byte> data(10);
                                   MOTLEY_TRY(const SendId id, comm.post(data, 1));
                                   return comm.complete(id);
                                 },
                                 {.timeout = Nanos(20'000'000)});
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, ErrorCode::kPeerLost);
  EXPECT_EQ(result.error().message, "rank 1 did not answer in complete");
}

}  // namespace
}  // namespace motley::testing
