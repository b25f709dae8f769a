// The baseline: what an ordinary framework would make of the same devices.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/plain/search.h"
#include "tests/support/planning_case.h"

namespace motley {
namespace {

using ::testing::HasSubstr;
using testing::PlanningCase;

constexpr int64_t kMiB = 1 << 20;

/// A layer that takes this much a sample, and as much again for each micro-batch.
LayerCurve layer_curve(const std::string& layer, double seconds) {
  LayerCurve curve;
  curve.layer = layer;
  for (const int size : {1, 2, 4, 8})
    curve.points.push_back({size, seconds * (size + 1), 0.01, 5, seconds * (size + 1) / 3});
  curve.fit = fit_curve(curve.points);
  return curve;
}

/// Devices of 12 MiB for a model of seven blocks that none holds; the first is quicker.
PlanningCase too_large(int devices, int global_batch = 16) {
  PlanningCase problem(global_batch);
  problem.job.model = {"gpt", 7, 2, 8, 16, 32};
  for (int i = 0; i < devices; ++i) {
    problem.add({.largest_micro_batch = 0});
    DeviceProfile& device = problem.profile.devices.back();
    const double seconds = i == 0 ? 0.001 : 0.002;
    device.memory_limit = Bytes(12 * kMiB);
    device.curves = {layer_curve("embedding", seconds), layer_curve("block", 4 * seconds),
                     layer_curve("head", seconds)};
  }
  return problem;
}

/// Two for each layer, one for each two samples of a micro-batch.
Result<std::vector<RankMemory>> counted(const Plan& plan) {
  std::vector<RankMemory> memory;
  for (const ReplicaPlan& replica : plan.replicas)
    for (const StagePlan& stage : replica.stages)
      memory.push_back({Bytes(kMiB * (2 * stage.layers() + replica.micro_batch / 2))});
  return memory;
}

std::vector<std::vector<int>> layers_of(const Plan& plan) {
  std::vector<std::vector<int>> layers;
  for (const ReplicaPlan& replica : plan.replicas) {
    layers.emplace_back();
    for (const StagePlan& stage : replica.stages) layers.back().push_back(stage.layers());
  }
  return layers;
}

TEST(EqualSplit, IsPlainDataParallelWhereTheModelFits) {
  PlanningCase problem(10);
  problem.add({.per_sample = 0.001}).add({.per_sample = 0.01}).add({.largest_micro_batch = 0});
  const Result<Plan> plan = plan_equal_split(problem.request(), counted);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->search.space,
            "equal split: plain data parallel, synchronous reduction at the end");
  EXPECT_EQ(equal_split_form(*plan), kEqualReplicas);
  ASSERT_EQ(plan->replicas.size(), 2u) << "over those that hold it";
  EXPECT_EQ(plan->replicas[0].grains, 5);
  EXPECT_EQ(plan->replicas[1].grains, 5);
}

TEST(EqualSplit, IsPipelinesOfEqualStagesWhereNoDeviceHoldsTheModel) {
  const PlanningCase problem = too_large(7, 15);
  const Result<Plan> plan = plan_equal_split(problem.request(), counted);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->search.space, "equal split: pipeline of equal stages");
  EXPECT_EQ(equal_split_form(*plan), kEqualPipelines);
  EXPECT_TRUE(validate(*plan, problem.job.model));
  // Two stages of four and five layers would take 10 of the 11.4 MiB that are free, and the
  // micro-batch the rest.
  EXPECT_EQ(layers_of(*plan), (std::vector<std::vector<int>>{{5, 4}, {5, 4}, {5, 4}}));
  for (const ReplicaPlan& replica : plan->replicas) {
    EXPECT_EQ(replica.grains, 5);
    EXPECT_EQ(replica.micro_batch, 2) << "larger ones are quicker, but do not fit";
  }
  EXPECT_EQ(plan->prediction.ranks[0].memory, Bytes(11 * kMiB));
  ASSERT_EQ(plan->left_out.size(), 1u);
  EXPECT_EQ(plan->left_out[0].device, "localhost/6");
  EXPECT_GT(plan->prediction.step_seconds, 0);
}

TEST(EqualSplit, TakesAsManyStagesAsItMust) {
  PlanningCase problem = too_large(4, 8);
  for (DeviceProfile& device : problem.profile.devices) device.memory_limit = Bytes(8 * kMiB);
  const Result<Plan> plan = plan_equal_split(problem.request(), counted);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(layers_of(*plan), (std::vector<std::vector<int>>{{3, 2, 2, 2}}));
  EXPECT_EQ(plan->replicas[0].grains, 8);
}

TEST(EqualSplit, ComputesSingleGrainsInExact) {
  PlanningCase problem = too_large(2);
  problem.job.train.numerics = Numerics::kExact;
  problem.job.train.grain = 2;
  const Result<Plan> plan = plan_equal_split(problem.request(), counted);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->replicas[0].micro_batch, 2);
  EXPECT_TRUE(validate(*plan, problem.job.model));
}

TEST(EqualSplit, SaysWhyThereIsNone) {
  PlanningCase problem = too_large(2);
  for (DeviceProfile& device : problem.profile.devices) device.memory_limit = Bytes(6 * kMiB);
  const Result<Plan> none = plan_equal_split(problem.request(), counted);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::kNoPlan);
  EXPECT_THAT(none.error().message, HasSubstr("no device can hold the model"));
  EXPECT_THAT(none.error().message, HasSubstr("no pipeline of equal stages over 2 devices"));
  EXPECT_EQ(plan_equal_split(problem.request()).error().code, ErrorCode::kNoPlan)
      << "memory of stages is not known";
}

TEST(EqualSplit, UsesOnlyDevicesTheJobAdmits) {
  PlanningCase problem = too_large(5);
  problem.job.devices.count = CountRange{.low = 1, .high = 3};
  const Result<Plan> plan = plan_equal_split(problem.request(), counted);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->world_size(), 2);
  EXPECT_EQ(plan->left_out.size(), 3u);
}

}  // namespace
}  // namespace motley
