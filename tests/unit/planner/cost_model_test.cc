#include "planner/costs/cost_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/plain/search.h"
#include "tests/support/planning_case.h"

namespace motley {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::PlanningCase;

/// Micro-batches of 1, 2 and 4 samples take 3, 4 and 10 s; a step's overhead is 0.5 s, the update
/// 0.25 s; 1 to 6 samples need 11 to 16 of 15 bytes.
DeviceProfile odd_device() {
  DeviceProfile device;
  device.device = "h/0";
  device.memory_limit = Bytes(15);
  LayerCurve curve;
  curve.points = {{1, 3, 0, 1}, {2, 4, 0, 1}, {4, 10, 0, 1}};
  curve.fit = fit_curve(curve.points);
  device.curves = {curve};
  device.step_overhead_seconds = 0.5;
  device.update_seconds = 0.25;
  for (int size = 1; size <= 6; ++size) device.memory.push_back({size, Bytes(10), Bytes(size)});
  return device;
}

TEST(CostModel, MicroBatchesAreWholeGrainsThatFit) {
  const DeviceProfile device = odd_device();
  EXPECT_THAT(micro_batch_sizes(device, {1, false, 0}), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(micro_batch_sizes(device, {2, false, 0}), ElementsAre(2, 4));
  EXPECT_THAT(micro_batch_sizes(device, {2, true, 0}), ElementsAre(2));
  EXPECT_THAT(micro_batch_sizes(device, {6, false, 0}), IsEmpty());
  // All of a step whose last grain is short: what is computed is the step.
  EXPECT_THAT(micro_batch_sizes(device, {2, false, 0, 5}), ElementsAre(2, 4, 6));
  EXPECT_THAT(micro_batch_sizes(device, {4, false, 0, 6}), ElementsAre(4)) << "six do not fit";
  EXPECT_THAT(micro_batch_sizes(device, {2, true, 0, 5}), ElementsAre(2));
  // A tenth of 15 bytes free leaves 13.5, of which 13 are whole.
  EXPECT_EQ(usable_memory(device, 0.1), Bytes(13));
  EXPECT_THAT(micro_batch_sizes(device, {1, false, 0.1}), ElementsAre(1, 2, 3));
  EXPECT_EQ(largest_micro_batch(device, 0.1), 3);
  EXPECT_EQ(largest_micro_batch(device, 0.5), 0);
}

TEST(CostModel, ADeviceTakesItsOverheadAndEachMicroBatch) {
  const DeviceProfile device = odd_device();
  EXPECT_DOUBLE_EQ(device_seconds(device, 8, 2), 0.5 + 4 * 4);
  EXPECT_DOUBLE_EQ(device_seconds(device, 7, 2), 0.5 + 3 * 4 + 3);     // the last one smaller
  EXPECT_DOUBLE_EQ(device_seconds(device, 7, 4), 0.5 + 10 + (4 + 3));  // 3 samples: between 2, 4
  EXPECT_DOUBLE_EQ(device_seconds(device, 1, 4), 0.5 + 3);
}

TEST(CostModel, TheBestMicroBatchNeedNotBeTheLargest) {
  const DeviceProfile device = odd_device();
  const MicroBatchChoice best = best_micro_batch(device, 8, {1, 2, 4});
  EXPECT_EQ(best.micro_batch, 2);
  EXPECT_DOUBLE_EQ(best.seconds, 16.5);
  EXPECT_EQ(best_micro_batch(device, 1, {1, 2, 4}).micro_batch, 1) << "the smallest of equals";
  EXPECT_EQ(best_micro_batch(device, 8, {4}).micro_batch, 4);
}

TEST(CostModel, SoloSpeedHoldsUpdateAndOverhead) {
  EXPECT_DOUBLE_EQ(solo_samples_per_second(odd_device(), 8, {1, false, 0}), 8 / (16.5 + 0.25));
  EXPECT_DOUBLE_EQ(solo_samples_per_second(odd_device(), 8, {1, true, 0}), 8 / (24.5 + 0.25));
  EXPECT_EQ(solo_samples_per_second(odd_device(), 8, {1, false, 0.9}), 0);
}

TEST(CostModel, GradientsAreFourBytesOrEightInExact) {
  JobSpec job;
  job.model = {"gpt", 1, 2, 8, 16, 32};
  EXPECT_EQ(gradient_bytes(job), Bytes(parameter_count(job.model) * 4));
  job.train.numerics = Numerics::kExact;
  EXPECT_EQ(gradient_bytes(job), Bytes(parameter_count(job.model) * 8));
}

// --- reduction ---

constexpr Bytes kGradients{1200};

/// 2·(n-1)·(latency + bytes/n / bandwidth).
double ring(int ranks, double latency, double bytes_per_second) {
  return 2 * (ranks - 1) * (latency + 1200.0 / ranks / bytes_per_second);
}

TEST(ReductionModel, OneRankHasNothingToReduce) {
  Profile profile;
  profile.links = {{{"a", "a"}, 1, 1}};
  EXPECT_EQ(ReductionModel(profile, kGradients).seconds(1, {"a"}), 0);
  EXPECT_EQ(ReductionModel(Profile{}, kGradients).seconds(3, {"a", "b"}), 0) << "nothing known";
}

TEST(ReductionModel, TheSlowestLinkDecides) {
  Profile profile;
  profile.links = {{{"a", "a"}, 0, 1000}, {{"a", "b"}, 0.5, 100}, {{"a", "c"}, 0.1, 200}};
  const ReductionModel model(profile, kGradients);
  EXPECT_DOUBLE_EQ(model.seconds(3, {"a"}), ring(3, 0, 1000));
  EXPECT_DOUBLE_EQ(model.seconds(2, {"a", "b"}), ring(2, 0.5, 100));
  EXPECT_DOUBLE_EQ(model.seconds(2, {"b", "a"}), ring(2, 0.5, 100));
  EXPECT_DOUBLE_EQ(model.seconds(4, {"a", "b", "c"}), ring(4, 0.5, 100));
  // Nobody measured b to c: as the slowest of all.
  EXPECT_DOUBLE_EQ(model.seconds(2, {"b", "c"}), ring(2, 0.5, 100));
}

TEST(ReductionModel, WithinAHostWhatWasMeasuredTells) {
  Profile profile;
  profile.links = {{{"a", "a"}, 0, 1}};
  profile.reductions = {{2, {"a"}, kGradients, 0.1}, {6, {"a"}, kGradients, 0.5}};
  const ReductionModel model(profile, kGradients);
  EXPECT_DOUBLE_EQ(model.seconds(2, {"a"}), 0.1);
  EXPECT_DOUBLE_EQ(model.seconds(3, {"a"}), 0.2);  // on the line
  EXPECT_DOUBLE_EQ(model.seconds(6, {"a"}), 0.5);
  EXPECT_DOUBLE_EQ(model.seconds(12, {"a"}), 0.5 * (11.0 / 12) / (5.0 / 6));  // as a ring's share
}

TEST(ReductionModel, BetweenHostsAMeasuredReductionCalibratesTheLinks) {
  Profile profile;
  profile.links = {{{"a", "b"}, 0, 100}, {{"b", "c"}, 0, 50}};
  profile.reductions = {{2, {"a", "b"}, kGradients, 3 * ring(2, 0, 100)}};
  const ReductionModel model(profile, kGradients);
  EXPECT_DOUBLE_EQ(model.seconds(2, {"a", "b"}), 3 * ring(2, 0, 100));
  EXPECT_DOUBLE_EQ(model.seconds(4, {"b", "c"}), 3 * ring(4, 0, 50));
}

TEST(ReductionModel, FewerBytesCrossLinksThatAreCompressed) {
  Profile profile;
  profile.links = {{{"a", "b"}, 0.5, 100}, {{"b", "c"}, 0, 50}, {{"a", "a"}, 0, 20}};
  const ReductionModel model(profile, kGradients,
                             {.below_bytes_per_second = 80, .bytes_ratio = 0.5});
  EXPECT_DOUBLE_EQ(model.seconds(2, {"a"}), ring(2, 0, 20));
  EXPECT_DOUBLE_EQ(model.pair_seconds(2, "a", "b"), ring(2, 0.5, 100));
  EXPECT_DOUBLE_EQ(model.pair_seconds(2, "b", "c"), ring(2, 0, 50 * 2));
}

TEST(ReductionModel, AReductionOnUnknownHostsHoldsForAll) {
  Profile profile;
  profile.reductions = {{2, {}, kGradients, 0.1}, {4, {}, kGradients, 0.3}};
  const ReductionModel model(profile, kGradients);
  EXPECT_DOUBLE_EQ(model.seconds(2, {"a", "b"}), 0.1);
  EXPECT_DOUBLE_EQ(model.seconds(3, {"x", "y", "z"}), 0.2);
}

// --- prediction ---

/// 7 : 5 of 12 samples on devices of 10 and 15 ms a sample.
Plan two_device_plan(const PlanningCase& problem) {
  Plan plan = *plan_search(problem.request());
  EXPECT_EQ(samples_of(plan, 0).count, 7);
  return plan;
}

PlanningCase two_devices() {
  PlanningCase problem(12);
  problem.add({.fixed = 0, .per_sample = 0.010, .step_overhead = 0.002, .update = 0.001})
      .add({.fixed = 0, .per_sample = 0.015, .step_overhead = 0.004, .update = 0.003})
      .add_reduction(2, 0.005);
  problem.fleet.devices[0].price_per_hour = 1.25;
  problem.fleet.devices[1].price_per_hour = 0.5;
  return problem;
}

TEST(Prediction, ItsPartsSumToTheStep) {
  const Prediction predicted = two_device_plan(two_devices()).prediction;
  // 2 + 70 + 1 ms against 4 + 75 + 3 ms.
  EXPECT_DOUBLE_EQ(predicted.compute_seconds, 0.079);
  EXPECT_DOUBLE_EQ(predicted.update_seconds, 0.003);
  EXPECT_DOUBLE_EQ(predicted.communication_seconds, 0.005);
  EXPECT_EQ(predicted.bubble_seconds, 0);
  EXPECT_DOUBLE_EQ(predicted.step_seconds, 0.087);
  EXPECT_DOUBLE_EQ(predicted.samples_per_second, 12 / 0.087);
  EXPECT_NEAR(predicted.ranks[0].wait_seconds, 0.082 - 0.073, 1e-15);
  EXPECT_EQ(predicted.ranks[1].wait_seconds, 0);
  EXPECT_DOUBLE_EQ(predicted.cost_per_hour, 1.75);
}

TEST(Prediction, CostsNothingThatIsSaidWhereAPriceIsMissing) {
  PlanningCase problem = two_devices();
  problem.fleet.devices[1].price_per_hour = 0;
  EXPECT_EQ(two_device_plan(problem).prediction.cost_per_hour, 0);
}

TEST(Prediction, TheBoundIsTheSameDealWithoutReduction) {
  const Prediction predicted = two_device_plan(two_devices()).prediction;
  const double solo_sum = 12 / 0.123 + 12 / 0.187;
  EXPECT_DOUBLE_EQ(predicted.solo_sum_samples_per_second, solo_sum);
  EXPECT_DOUBLE_EQ(predicted.integer_bound_efficiency, 12 / 0.082 / solo_sum);
}

TEST(Prediction, UncertaintyIsOfTheReplicaThatMayEndLast) {
  PlanningCase problem = two_devices();
  Plan plan = two_device_plan(problem);
  plan.replicas[1].micro_batch = 1;
  for (DeviceProfile& device : problem.profile.devices)
    for (CurvePoint& point : device.curves[0].points) point.spread = 0;
  const auto uncertainty = [&] {
    EXPECT_TRUE(predict(problem.request(), &plan));
    return plan.prediction.uncertainty * plan.prediction.step_seconds;
  };
  EXPECT_EQ(uncertainty(), 0);
  // The second device ends last, after 82 ms.
  problem.profile.devices[1].curves[0].points[0].spread = 0.25;  // of micro-batch 1
  EXPECT_DOUBLE_EQ(uncertainty(), 0.25 * 0.082);
  plan.replicas[1].micro_batch = 4;
  EXPECT_EQ(uncertainty(), 0);
  // The first is through after 73 ms: what may last half as long again is the last one then.
  for (CurvePoint& point : problem.profile.devices[0].curves[0].points) point.spread = 0.5;
  EXPECT_DOUBLE_EQ(uncertainty(), 0.073 * 1.5 - 0.082);
  for (CurvePoint& point : problem.profile.devices[0].curves[0].points) point.spread = 0;
  problem.profile.reductions[0].spread = 0.2;  // of 5 ms
  EXPECT_DOUBLE_EQ(uncertainty(), 0.2 * 0.005);
}

TEST(Prediction, APlanOfUnknownDevicesIsRefused) {
  PlanningCase problem = two_devices();
  Plan plan = two_device_plan(problem);
  plan.ranks[1].device = "elsewhere/7";
  const Result<Unit> predicted = predict(problem.request(), &plan);
  ASSERT_FALSE(predicted);
  EXPECT_EQ(predicted.error().code, ErrorCode::kInvalidSpec);
  EXPECT_EQ(predicted.error().message, "the profile lacks elsewhere/7 (card), which the plan uses");
}

}  // namespace
}  // namespace motley
