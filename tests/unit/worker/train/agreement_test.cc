#include "worker/train/agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>

namespace motley {
namespace {

using ::testing::HasSubstr;

/// Runs `body` on every rank and keeps what each came to.
std::map<int, Result<Unit>> outcomes(int ranks,
                                     const std::function<Result<Unit>(Communicator&)>& body) {
  std::mutex mutex;
  std::map<int, Result<Unit>> all;
  (void)run_inproc(ranks, [&](Communicator& world) -> Result<Unit> {
    const auto outcome = body(world);
    const std::lock_guard lock(mutex);
    all.emplace(world.rank(), outcome);
    return Unit{};  // what one rank did must not disturb what the others see
  });
  return all;
}

TEST(Agreement, AllSucceedWhenAllDid) {
  for (const auto& [rank, outcome] :
       outcomes(3, [](Communicator& world) { return all_succeeded(world, Unit{}); }))
    EXPECT_TRUE(outcome.has_value()) << "rank " << rank;
}

TEST(Agreement, TheCulpritKeepsItsErrorAndTheOthersNameIt) {
  const auto all = outcomes(3, [](Communicator& world) -> Result<Unit> {
    Result<Unit> mine = Unit{};
    if (world.rank() == 1) mine = fail(ErrorCode::kNotFound, "no data");
    return all_succeeded(world, mine);
  });
  EXPECT_EQ(all.at(1).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(all.at(1).error().message, "no data");
  for (const int other : {0, 2}) {
    EXPECT_EQ(all.at(other).error().code, ErrorCode::kPeerLost);
    EXPECT_EQ(all.at(other).error().message, "rank 1 ended the run: no data");
  }
}

TEST(Agreement, OfWhatAllKnowRankZeroSpeaks) {
  const auto all = outcomes(2, [](Communicator& world) -> Result<Unit> {
    return joint_failure(world, ErrorCode::kRunFailed, "loss not finite");
  });
  EXPECT_EQ(all.at(0).error().code, ErrorCode::kRunFailed);
  EXPECT_EQ(all.at(1).error().code, ErrorCode::kPeerLost);
}

TEST(Agreement, AHostThatDiffersIsNamed) {
  const auto all = outcomes(3, [](Communicator& world) -> Result<Unit> {
    Identity mine{.host = "host" + std::to_string(world.rank()),
                  .program = "0.1.0",
                  .communicator = "mpi",
                  .arithmetic_class = "",
                  .data_hash = world.rank() == 2 ? "bbbb" : "aaaa"};
    return all_alike(world, mine);
  });
  ASSERT_EQ(all.at(0).error().code, ErrorCode::kBrokenInstall);
  EXPECT_THAT(all.at(0).error().message, HasSubstr("host host2 has data with hash bbbb"));
}

}  // namespace
}  // namespace motley
