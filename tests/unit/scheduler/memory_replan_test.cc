#include "scheduler/run/memory_replan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "planner/plain/search.h"
#include "scheduler/report/report_text.h"
#include "scheduler/run/given_plan.h"
#include "tests/support/planning_case.h"

namespace motley {
namespace {

using ::testing::HasSubstr;
using testing::PlanningCase;

/// Two devices on which large micro-batches pay.
PlanningCase two_devices() {
  PlanningCase problem(32);
  problem.add({.type = "fast", .fixed = 0.05, .per_sample = 0.01});
  problem.add({.type = "slow", .fixed = 0.05, .per_sample = 0.02});
  return problem;
}

Result<std::vector<RankMemory>> count_nothing(const Plan&) {
  ADD_FAILURE() << "a search knows the memory from its tables";
  return std::vector<RankMemory>();
}

const ReplicaPlan* replica_of(const Plan& plan, const std::string& device) {
  for (const ReplicaPlan& replica : plan.replicas)
    if (plan.ranks[static_cast<size_t>(replica.stages[0].ranks[0].value())].device == device)
      return &replica;
  return nullptr;
}

int samples_at_once(const Plan& plan, const std::string& device) {
  const ReplicaPlan* replica = replica_of(plan, device);
  return replica == nullptr ? 0 : std::min(replica->micro_batch, replica->grains * plan.grain);
}

TEST(MemoryReplan, HalvesUntilNothingSmallerIsLeft) {
  const PlanningCase problem = two_devices();
  Plan plan = plan_search(problem.request()).value();
  Profile profile = problem.profile;
  const std::string device = plan.ranks[0].device;
  const int other = samples_at_once(plan, plan.ranks[1].device);
  ASSERT_GE(samples_at_once(plan, device), 8);
  int planned = samples_at_once(plan, device);
  while (planned > 1) {
    const PlanRequest request{problem.job, problem.fleet, profile};
    const auto next = plan_for_less_memory(request, plan, Rank(0), count_nothing);
    ASSERT_TRUE(next) << next.error().message;
    EXPECT_EQ(next->what.device, device);
    EXPECT_EQ(next->what.micro_batch, planned);
    EXPECT_LE(next->what.then, planned / 2);
    EXPECT_EQ(next->what.then, samples_at_once(next->plan, device));
    planned = next->what.then;
    plan = next->plan;
    profile = next->profile;
    if (planned == 0) break;  // it is no longer worth having
  }
  if (planned == 0) return;
  EXPECT_GE(samples_at_once(plan, plan.ranks[1].device), other / 2) << "that one has its memory";
  const auto end =
      plan_for_less_memory({problem.job, problem.fleet, profile}, plan, Rank(0), count_nothing);
  ASSERT_FALSE(end);
  EXPECT_EQ(end.error().code, ErrorCode::kNoPlan);
  EXPECT_THAT(end.error().message, HasSubstr(device + " cannot hold micro-batch 1: no smaller"));
}

TEST(MemoryReplan, AGrainThatTheJobFixesIsNotCut) {
  PlanningCase problem = two_devices();
  problem.job.train.numerics = Numerics::kExact;
  problem.job.train.grain = 4;
  const Plan plan = plan_search(problem.request()).value();
  const auto next = plan_for_less_memory(problem.request(), plan, Rank(1), count_nothing);
  ASSERT_FALSE(next);
  EXPECT_THAT(next.error().message, HasSubstr("whole grains of 4"));
  problem.job.train.numerics = Numerics::kFast;
  const Plan fast = plan_search(problem.request()).value();
  const auto halved = plan_for_less_memory(problem.request(), fast, Rank(1), count_nothing);
  ASSERT_TRUE(halved) << halved.error().message;
  EXPECT_EQ(halved->what.then % 4, 0);
}

TEST(MemoryReplan, OfOneGrainAndAHalfOneGrainIsLeft) {
  PlanningCase problem(6);
  problem.add({.fixed = 0.05, .per_sample = 0.01});
  problem.job.train.grain = 4;
  const Plan plan = plan_search(problem.request()).value();
  ASSERT_EQ(plan.replicas[0].micro_batch, 8) << "all at once, which are six samples";
  const auto next = plan_for_less_memory(problem.request(), plan, Rank(0), count_nothing);
  ASSERT_TRUE(next) << next.error().message;
  EXPECT_EQ(next->what.micro_batch, 6);
  EXPECT_EQ(next->what.then, 4);
}

TEST(MemoryReplan, APlanByHandKeepsTheRest) {
  const PlanningCase problem = two_devices();
  Plan plan = plan_search(problem.request()).value();
  plan.search.space = "given: no search";
  ASSERT_TRUE(is_given(plan));
  plan.replicas[0].micro_batch = 8;
  int counted = 0;
  const auto count = [&](const Plan& asked) -> Result<std::vector<RankMemory>> {
    ++counted;
    EXPECT_LE(asked.replicas[0].micro_batch, 4);
    return std::vector<RankMemory>(asked.ranks.size(), RankMemory{.total = Bytes(1)});
  };
  const Rank first = plan.replicas[0].stages[0].ranks[0];
  const auto next = plan_for_less_memory(problem.request(), plan, first, count);
  ASSERT_TRUE(next) << next.error().message;
  EXPECT_EQ(counted, 1);
  EXPECT_EQ(next->what.then, 8 / 2 / plan.grain * plan.grain);
  EXPECT_EQ(next->plan.replicas[0].grains, plan.replicas[0].grains);
  EXPECT_EQ(next->plan.replicas[1].micro_batch, plan.replicas[1].micro_batch);
  EXPECT_TRUE(is_given(next->plan));
  EXPECT_NE(next->plan.id, plan.id);
  EXPECT_GT(next->plan.prediction.step_seconds, 0);
}

TEST(MemoryReplan, IsToldInOneLine) {
  EXPECT_EQ(out_of_memory_text({"r1/0", "RTX3090", 8, 4}),
            "r1/0 (RTX3090) ran out of memory at micro-batch 8: going on with 4");
  EXPECT_EQ(out_of_memory_text({"r1/0", "", 2, 0}),
            "r1/0 ran out of memory at micro-batch 2: going on without it");
}

}  // namespace
}  // namespace motley
