#include "worker/train/rank_share.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace motley {
namespace {

using ::testing::ElementsAre;

MATCHER_P2(Samples, first, count, "") { return arg.first == first && arg.count == count; }

/// Replicas of one rank each with the given grains of `grain` samples; the last grain of the step
/// may be short.
Plan plan_of(const std::vector<int>& grains, int grain, int micro_batch, int global_batch) {
  Plan plan;
  plan.global_batch = global_batch;
  plan.grain = grain;
  for (size_t i = 0; i < grains.size(); ++i) {
    ReplicaPlan replica;
    replica.stages = {{0, 3, {Rank(static_cast<int>(i))}, {1.0}}};
    replica.grains = grains[i];
    replica.micro_batch = micro_batch;
    plan.replicas.push_back(replica);
    plan.ranks.push_back({.device = "h/" + std::to_string(i), .host = "h", .type = "t"});
  }
  return plan;
}

TEST(RankShare, MicroBatchesAreTheReplicasGrainsInOrder) {
  const Plan plan = plan_of({3, 2}, 2, 4, 10);
  const auto first = share_of(plan, Rank(0), 0);
  EXPECT_THAT(first.micro_batches, ElementsAre(Samples(0, 4), Samples(4, 2)));
  EXPECT_EQ(first.samples(), 6);
  EXPECT_THAT(first.sizes, ElementsAre(4, 2));
  const auto second = share_of(plan, Rank(1), 0);
  EXPECT_THAT(second.micro_batches, ElementsAre(Samples(6, 4)));
}

TEST(RankShare, HeldOutSamplesAreDealtLikeTrainingBatchesEachOnce) {
  const Plan plan = plan_of({3, 2}, 2, 4, 10);
  std::vector<int> times(23, 0);
  for (const int rank : {0, 1}) {
    const auto share = share_of(plan, Rank(rank), 23);
    for (const SampleRange& range : share.evaluation)
      for (int i = range.first; i < range.first + range.count; ++i)
        ++times.at(static_cast<size_t>(i));
  }
  EXPECT_THAT(times, ::testing::Each(1));
}

TEST(RankShare, InExactTheWholeGrainIsCompiledEvenByARankWithOnlyTheShortOne) {
  Plan plan = plan_of({2, 1}, 4, 4, 11);
  plan.numerics = Numerics::kExact;
  const auto share = share_of(plan, Rank(1), 0);
  EXPECT_THAT(share.micro_batches, ElementsAre(Samples(8, 3)));
  EXPECT_THAT(share.sizes, ElementsAre(4, 3));
  EXPECT_EQ(share.largest(), 4);
}

TEST(RankShare, AStageKeepsAsManyMicroBatchesAsStagesFollow) {
  Plan plan = plan_of({7}, 4, 4, 28);
  plan.ranks.resize(3);
  plan.replicas[0].stages = {
      {0, 1, {Rank(0)}, {1.0}}, {2, 2, {Rank(1)}, {1.0}}, {3, 3, {Rank(2)}, {1.0}}};
  for (const auto& [rank, in_flight] : std::map<int, int>{{0, 3}, {1, 2}, {2, 1}}) {
    const RankShare share = share_of(plan, Rank(rank), 0);
    EXPECT_EQ(share.in_flight, in_flight);
    EXPECT_EQ(share.samples(), 28);
  }
}

}  // namespace
}  // namespace motley
