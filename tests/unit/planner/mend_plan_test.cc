#include "planner/mend_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "planner/costs/cost_model.h"
#include "planner/search_forms.h"
#include "tests/support/layered_case.h"

namespace motley {
namespace {

using ::testing::HasSubstr;
using testing::LayeredDevice;
using testing::PlanningCase;

/// Like cards none of which holds the model, two of which do, four on a host.
PlanningCase cards(int count) {
  PlanningCase problem(64);
  problem.job.model = testing::kSmallGpt2;
  for (int i = 0; i < count; ++i)
    testing::add_layered({.host = "host" + std::to_string(i / 4),
                          .type = "card",
                          .memory_mib = 2048,
                          .sharing = false},
                         &problem);
  for (int a = 0; 4 * a < count; ++a)
    for (int b = a; 4 * b < count; ++b)
      problem.add_link("host" + std::to_string(a), "host" + std::to_string(b), 30e-6, 1e10);
  return problem;
}

Plan plan_of(PlanningCase problem, int replicas, int stages) {
  problem.job.parallel.data = replicas;
  problem.job.parallel.pipeline = stages;
  const auto plan = search_all_forms(problem.request(), testing::layer_bytes_counter(problem));
  EXPECT_TRUE(plan) << plan.error().message;
  return *plan;
}

std::set<std::string> devices_of(const Plan& plan, const ReplicaPlan& replica) {
  std::set<std::string> devices;
  for (const StagePlan& stage : replica.stages)
    for (const Rank rank : stage.ranks)
      devices.insert(plan.ranks[static_cast<size_t>(rank.value())].device);
  return devices;
}

std::string device_of(const Plan& plan, size_t replica, size_t stage) {
  const Rank rank = plan.replicas[replica].stages[stage].ranks[0];
  return plan.ranks[static_cast<size_t>(rank.value())].device;
}

void lose(const std::string& device, PlanningCase* problem) {
  std::erase_if(problem->fleet.devices, [&](const DeviceSpec& one) { return one.id == device; });
}

std::optional<MendedPlan> mended(const PlanningCase& problem, const Plan& previous) {
  PlanRequest request = problem.request();
  request.previous = &previous;
  const auto plan = mend_plan(request, testing::layer_bytes_counter(problem));
  EXPECT_TRUE(plan) << plan.error().message;
  return plan ? *plan : std::nullopt;
}

/// Whole, of devices that are there, priced as any plan, its grains dealt so that moving one makes
/// no quicker step.
void check(const PlanningCase& problem, const Plan& plan) {
  for (const RankPlacement& rank : plan.ranks)
    EXPECT_NE(problem.fleet.find(rank.device), nullptr) << rank.device;
  EXPECT_EQ(plan.world_size() + std::ssize(plan.left_out), std::ssize(problem.fleet.devices));
  EXPECT_TRUE(validate(plan, problem.job.model));
  Plan again = plan;
  EXPECT_TRUE(predict(problem.request(), &again));
  EXPECT_DOUBLE_EQ(again.prediction.step_seconds, plan.prediction.step_seconds);
  EXPECT_LE(plan.search.lower_bound_step_seconds, plan.prediction.step_seconds);
  for (ReplicaPlan& from : again.replicas)
    for (ReplicaPlan& to : again.replicas) {
      if (&from == &to || from.grains == 1) continue;
      --from.grains;
      ++to.grains;
      EXPECT_TRUE(predict(problem.request(), &again));
      EXPECT_GE(again.prediction.step_seconds, plan.prediction.step_seconds * (1 - 1e-9));
      ++from.grains;
      --to.grains;
    }
}

TEST(MendPlan, ALikeDeviceComesInsteadOfTheLostOne) {
  PlanningCase problem = cards(8);
  const Plan previous = plan_of(problem, 3, 2);
  ASSERT_EQ(previous.left_out.size(), 2U);
  lose(device_of(previous, 1, 0), &problem);
  const auto plan = mended(problem, previous);
  ASSERT_TRUE(plan);
  check(problem, plan->plan);
  EXPECT_TRUE(plan->is_enough);
  EXPECT_EQ(plan->plan.replicas.size(), 3U);
  EXPECT_EQ(plan->plan.left_out.size(), 1U);
  EXPECT_THAT(plan->plan.search.space, HasSubstr("1 of 3 replicas lost devices"));
}

TEST(MendPlan, ReplicasThatHaveAllTheirDevicesStayAsTheyAre) {
  PlanningCase problem = cards(8);
  const Plan previous = plan_of(problem, 2, 4);
  const std::string lost = device_of(previous, 0, 1);
  lose(lost, &problem);
  const auto plan = mended(problem, previous);
  ASSERT_TRUE(plan);
  check(problem, plan->plan);
  const ReplicaPlan& whole = previous.replicas[1];
  const auto same = [&](const ReplicaPlan& replica) {
    return devices_of(plan->plan, replica) == devices_of(previous, whole) &&
           replica.micro_batch == whole.micro_batch && replica.grains >= whole.grains;
  };
  EXPECT_TRUE(std::any_of(plan->plan.replicas.begin(), plan->plan.replicas.end(), same));
}

TEST(MendPlan, WhatIsLeftOfAReplicaIsCutAnew) {
  PlanningCase problem = cards(8);
  const Plan previous = plan_of(problem, 2, 4);
  lose(device_of(previous, 0, 1), &problem);
  const auto plan = mended(problem, previous);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->plan.world_size(), 7);
  std::multiset<size_t> stages;
  for (const ReplicaPlan& replica : plan->plan.replicas) stages.insert(replica.stages.size());
  EXPECT_EQ(stages, (std::multiset<size_t>{3, 4}));
}

TEST(MendPlan, ReplicasThatLostDevicesMendEachOther) {
  PlanningCase problem = cards(8);
  const Plan previous = plan_of(problem, 4, 2);
  lose(device_of(previous, 0, 1), &problem);
  lose(device_of(previous, 2, 0), &problem);
  const auto plan = mended(problem, previous);
  ASSERT_TRUE(plan);
  check(problem, plan->plan);
  EXPECT_EQ(plan->plan.replicas.size(), 3U);
  EXPECT_TRUE(plan->plan.left_out.empty());
}

TEST(MendPlan, WhatCannotHoldTheModelIsLeftOut) {
  PlanningCase problem = cards(8);
  const Plan previous = plan_of(problem, 4, 2);
  const std::string left = device_of(previous, 3, 1);
  lose(device_of(previous, 3, 0), &problem);
  const auto plan = mended(problem, previous);
  ASSERT_TRUE(plan);
  check(problem, plan->plan);
  EXPECT_EQ(plan->plan.replicas.size(), 3U);
  ASSERT_EQ(plan->plan.left_out.size(), 1U);
  EXPECT_EQ(plan->plan.left_out[0].device, left);
  EXPECT_EQ(plan->plan.left_out[0].why, "its replica lost a device");
}

TEST(MendPlan, AnUnevenBatchIsDealtToTheLastSample) {
  PlanningCase problem = cards(8);
  problem.job.train.global_batch = 61;
  problem.job.train.grain = 2;
  const Plan previous = plan_of(problem, 4, 2);
  lose(device_of(previous, 3, 0), &problem);
  const auto plan = mended(problem, previous);
  ASSERT_TRUE(plan);
  EXPECT_TRUE(validate(plan->plan, problem.job.model));
  EXPECT_EQ(plan->plan.grain_count(), 31);
}

TEST(MendPlan, SharedStateStaysShared) {
  PlanningCase problem = cards(8);
  problem.job.parallel.shard_optimizer = ShardOptimizer::kOn;
  const Plan previous = plan_of(problem, 4, 2);
  ASSERT_TRUE(previous.shard_optimizer);
  lose(device_of(previous, 3, 0), &problem);
  const auto plan = mended(problem, previous);
  ASSERT_TRUE(plan);
  EXPECT_TRUE(plan->plan.shard_optimizer);
  EXPECT_TRUE(validate(plan->plan, problem.job.model));
}

TEST(MendPlan, DevicesOfOtherTypesComeInsteadOfNone) {
  PlanningCase problem = cards(6);
  testing::add_layered({.host = "host1", .type = "other", .memory_mib = 2048}, &problem);
  testing::add_layered({.host = "host1", .type = "other", .memory_mib = 2048}, &problem);
  problem.job.devices.types = {"card"};
  const Plan previous = plan_of(problem, 3, 2);
  problem.job.devices.types.clear();
  lose(device_of(previous, 1, 0), &problem);
  const auto plan = mended(problem, previous);
  ASSERT_TRUE(plan);
  check(problem, plan->plan);
  EXPECT_EQ(plan->plan.replicas.size(), 2U);
  for (const RankPlacement& rank : plan->plan.ranks) EXPECT_EQ(rank.type, "card");
}

TEST(MendPlan, WhatIsLeftOfOneReplicaMendsAnother) {
  PlanningCase problem = cards(8);
  const Plan previous = plan_of(problem, 2, 4);
  for (const size_t stage : {0, 1}) lose(device_of(previous, 0, stage), &problem);
  lose(device_of(previous, 1, 3), &problem);
  problem.job.parallel.pipeline = 4;  // nothing is cut anew
  const auto plan = mended(problem, previous);
  ASSERT_TRUE(plan);
  check(problem, plan->plan);
  EXPECT_EQ(plan->plan.replicas.size(), 1U);
  EXPECT_EQ(plan->plan.left_out.size(), 1U);
}

TEST(MendPlan, IsNotEnoughWhereMuchOfWhatIsLeftGoesUnused) {
  PlanningCase problem = cards(8);
  const Plan previous = plan_of(problem, 2, 4);
  lose(device_of(previous, 0, 1), &problem);
  problem.job.parallel.pipeline = 4;
  const auto plan = mended(problem, previous);
  ASSERT_TRUE(plan);
  check(problem, plan->plan);
  EXPECT_EQ(plan->plan.left_out.size(), 3U);
  EXPECT_FALSE(plan->is_enough);
}

TEST(MendPlan, KeepsTheGrainThatIsOpen) {
  PlanningCase problem = cards(8);
  problem.job.train.numerics = Numerics::kExact;
  problem.job.train.grain = 4;
  problem.job.train.global_batch = 128;
  for (DeviceProfile& device : problem.profile.devices) device.memory_limit = Bytes(4LL << 30);
  const Plan previous = plan_of(problem, 2, 4);
  problem.job.train.grain.reset();
  lose(device_of(previous, 0, 1), &problem);
  const auto plan = mended(problem, previous);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->plan.grain, 4);
  EXPECT_TRUE(validate(plan->plan, problem.job.model));
}

TEST(MendPlan, NothingForAnotherJobOrDevicesItDidNotKnow) {
  const PlanningCase problem = cards(8);
  const Plan previous = plan_of(problem, 4, 2);
  PlanningCase fewer = problem;
  lose(device_of(previous, 3, 0), &fewer);
  PlanningCase other = fewer;
  other.job.train.global_batch = 32;
  EXPECT_FALSE(mended(other, previous));
  other = fewer;
  other.job.parallel.data = 4;
  EXPECT_FALSE(mended(other, previous));
  other = fewer;
  testing::add_layered({.host = "host1", .type = "new", .memory_mib = 2048}, &other);
  EXPECT_FALSE(mended(other, previous));
}

TEST(MendPlan, ASearchFromThePreviousPlanIsNeverSlowerThanItMended) {
  PlanningCase problem = cards(12);
  const Plan previous = plan_of(problem, 3, 4);
  lose(device_of(previous, 0, 2), &problem);
  const auto plan = mended(problem, previous);
  ASSERT_TRUE(plan);
  PlanRequest request = problem.request();
  request.previous = &previous;
  const auto found = search_all_forms(request, testing::layer_bytes_counter(problem));
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_LE(found->prediction.step_seconds, plan->plan.prediction.step_seconds);
}

}  // namespace
}  // namespace motley
