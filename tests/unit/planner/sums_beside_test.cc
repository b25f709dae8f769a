// Sums that go on while gradients are computed: what of them a step waits for, by hand.

#include "planner/costs/sums_beside.h"

#include <gtest/gtest.h>

#include "core/plan_completion.h"
#include "planner/costs/cost_model.h"
#include "planner/costs/free_memory.h"
#include "planner/plain/search.h"
#include "planner/questions/explain.h"
#include "planner/search_forms.h"
#include "tests/support/planning_case.h"

namespace motley {
namespace {

using testing::PlanningCase;

TEST(SumsBeside, AStepWaitsForWhatComesLastOrDoesNotFitInAPass) {
  const auto end = [](double seconds, double busy = 0) {
    return end_with_sums({seconds, 0.25, busy}, {0.02, 0.06});
  };
  EXPECT_DOUBLE_EQ(end(0.04), 0.06 + 0.01) << "the first layer's";
  EXPECT_DOUBLE_EQ(end(0.1), 0.02 + 0.1) << "begun with the pass";
  EXPECT_DOUBLE_EQ(end(0.04, 0.5), 0.06 + 0.01 + 0.5 * 0.03) << "the rest holds up computing";
}

TEST(SumsBeside, APassWaitsForWhatItBeginsWithOrWhatIsSlowerThanIt) {
  const auto end = [](double seconds, double busy = 0) {
    return end_with_weights({seconds, 0.25, busy}, {0.01, 0.05}, 0.01);
  };
  EXPECT_DOUBLE_EQ(end(0.02), 0.05 + 0.005);
  EXPECT_DOUBLE_EQ(end(0.1), 0.01 + 0.1);
  EXPECT_DOUBLE_EQ(end(0.02, 0.5), 0.05 + 0.005 + 0.5 * 0.015);
}

/// Twelve samples of 10 ms, a third of it forward, on a device of each of two hosts, whose link
/// takes this long for all gradients.
PlanningCase device_of_each_host(double seconds) {
  PlanningCase problem(12);
  for (const char* host : {"a", "b"})
    problem.add({.host = host, .fixed = 0, .per_sample = 0.010, .update = 0.001});
  const auto bytes = static_cast<double>(gradient_bytes(problem.job).value());
  problem.add_link("a", "b", 0, bytes / seconds).at_own_speed();
  problem.job.parallel.data = 2;
  return problem;
}

double first_layer_of(const PlanningCase& problem) {
  // The vocabulary, which the head has, too, and the positions.
  const ModelSpec& model = problem.job.model;
  return static_cast<double>((model.vocab + model.context) * model.width) /
         static_cast<double>(parameter_count(model));
}

TEST(SumsBeside, OfWholeReplicasArePredicted) {
  for (const auto& [seconds, waits] : {std::pair(0.03, 0.0), std::pair(0.09, 0.05)}) {
    const PlanningCase problem = device_of_each_host(seconds);
    const Result<Plan> plan = plan_search(problem.request());
    ASSERT_TRUE(plan) << plan.error().to_string();
    const double exposed = std::max(waits, first_layer_of(problem) * seconds);
    EXPECT_NEAR(plan->prediction.communication_seconds, exposed, 1e-12);
    EXPECT_NEAR(plan->prediction.hidden_seconds, seconds - exposed, 1e-12);
    EXPECT_NEAR(plan->prediction.step_seconds, 0.061 + exposed, 1e-12);
    EXPECT_NEAR(plan->search.lower_bound_step_seconds, 0.061 + exposed, 1e-12);
    EXPECT_NE(explain(*plan).find(" beside computing)"), std::string::npos);
  }
}

TEST(SumsBeside, WaitForOneThatIsHeldBack) {
  PlanningCase problem = device_of_each_host(0.03);
  problem.fleet.devices[1].paced.emplace();
  EXPECT_NEAR(plan_search(problem.request())->prediction.communication_seconds, 0.03, 1e-12);
  problem = device_of_each_host(0.03);
  problem.fleet.devices[1].kind = DeviceKind::kCuda;
  const Result<Plan> plan = plan_search(problem.request());
  EXPECT_NEAR(plan->prediction.communication_seconds, 0.03, 1e-12);
  EXPECT_EQ(plan->prediction.hidden_seconds, 0);
  EXPECT_EQ(to_json(*plan)["prediction"].count("hidden_seconds"), 0U);
}

TEST(SumsBeside, WithinAHostTakeTheTimeOfItsCores) {
  PlanningCase problem(12);
  problem.add({.fixed = 0}).add({.fixed = 0}).add_reduction(2, 0.01, {"localhost"}).at_own_speed();
  const Result<Plan> plan = plan_search(problem.request());
  EXPECT_NEAR(plan->prediction.communication_seconds, 0.01, 1e-12);
  EXPECT_EQ(plan->prediction.hidden_seconds, 0);
}

TEST(SumsBeside, OfFactorsAndOfGroupsThatAverageComeAfterwards) {
  PlanningCase problem = device_of_each_host(0.03);
  EXPECT_EQ(plans_with_sums_beside(problem.request()), PlansBeside::kAll);
  problem.job.parallel.compress.kind = CodecKind::kPowerSgd;
  EXPECT_EQ(plans_with_sums_beside(problem.request()), PlansBeside::kNone);
  problem = device_of_each_host(0.03);
  problem.job.parallel.compress.kind = CodecKind::kInt8;
  EXPECT_EQ(plans_with_sums_beside(problem.request()), PlansBeside::kAll);
  problem.job.train.precision = Precision::kFp16;
  EXPECT_EQ(plans_with_sums_beside(problem.request()), PlansBeside::kNone)
      << "a step that overflows is repeated";
  problem = device_of_each_host(0.03);
  problem.job.parallel.sync.across = 4;
  EXPECT_EQ(plans_with_sums_beside(problem.request()), PlansBeside::kNone);
}

/// Long sums are hidden by a long last pass, if that costs less than it saves.
TEST(SumsBeside, LargerMicroBatchesHideMore) {
  PlanningCase problem = device_of_each_host(0.05);
  for (DeviceProfile& device : problem.profile.devices) {
    LayerCurve& curve = device.curves[0];
    curve.points = {{1, 0.0100, 0, 5}, {2, 0.0200, 0, 5}, {3, 0.0300, 0, 5},
                    {4, 0.0405, 0, 5}, {6, 0.0620, 0, 5}, {8, 0.0830, 0, 5}};
    curve.fit = fit_curve(curve.points);
  }
  const Result<Plan> plan = plan_search(problem.request());
  EXPECT_EQ(plan->replicas[0].micro_batch, 6);
  const double exposed = std::max(0.05 - 0.062 * 2 / 3, first_layer_of(problem) * 0.05);
  EXPECT_NEAR(plan->prediction.step_seconds, 0.001 + 0.062 + exposed, 1e-12);
  for (DeviceSpec& device : problem.fleet.devices) device.paced.emplace();
  EXPECT_LT(plan_search(problem.request())->replicas[0].micro_batch, 6) << "but take longer";
}

/// Two replicas of two stages, the first layers of both on hosts "a" and "b".
Plan of_stages(const PlanningCase& problem, bool shard) {
  Plan plan;
  plan.global_batch = problem.job.train.global_batch;
  plan.grain = 1;
  plan.shard_optimizer = shard;
  for (const DeviceSpec& device : problem.fleet.devices)
    plan.ranks.push_back({device.id, device.host, device.type});
  for (const int first : {0, 1}) {
    ReplicaPlan replica;
    replica.stages = {{0, 1, {Rank(first)}, {1.0}}, {2, 3, {Rank(first + 2)}, {1.0}}};
    replica.micro_batch = 1;
    replica.grains = plan.global_batch / 2;
    plan.replicas.push_back(replica);
  }
  EXPECT_TRUE(complete(problem.job, problem.fleet, &plan));
  EXPECT_TRUE(predict(problem.request(), &plan));
  return plan;
}

/// Each stage 3 ms a sample, 1 ms of it forward; links take no time but for gradients.
PlanningCase four_hosts(double seconds) {
  PlanningCase problem(4);
  problem.job.model = {"gpt", 2, 2, 8, 16, 32};
  for (const char* host : {"a", "b", "c", "d"}) {
    problem.add({.host = host});
    DeviceProfile& device = problem.profile.devices.back();
    device.curves.clear();
    for (const auto& [layer, time] :
         {std::pair("embedding", 0.0015), std::pair("block", 0.0015), std::pair("head", 0.0015)}) {
      LayerCurve& curve = device.curves.emplace_back();
      curve.layer = layer;
      curve.points = {{1, time, 0, 5, time / 3}, {2, 2 * time, 0, 5, 2 * time / 3}};
      curve.fit = fit_curve(curve.points);
    }
  }
  problem.profile.reductions = {};
  for (const int ranks : {2, 3, 4})
    problem.profile.reductions.push_back({ranks, {"a", "b", "c", "d"}, Bytes(0), seconds});
  return problem;
}

TEST(SumsBeside, OfLaterStagesHaveMoreTime) {
  PlanningCase problem = four_hosts(0.002);
  const Plan afterwards = of_stages(problem, false);
  const Plan plan = of_stages(problem.at_own_speed(), false);
  const double sums = afterwards.prediction.communication_seconds;
  // Two micro-batches: 1, 1, the second stage 3 each, then 2 of the first stage's last pass, begun
  // when the second stage is through.
  EXPECT_NEAR(afterwards.prediction.step_seconds - sums, 0.009, 1e-6);
  const Prediction& beside = plan.prediction;
  EXPECT_NEAR(beside.communication_seconds + beside.hidden_seconds, sums, 1e-12);
  EXPECT_GT(beside.hidden_seconds, 0.2 * sums);
  EXPECT_LT(beside.communication_seconds, sums);
}

TEST(SumsBeside, OfSharedStateAreHiddenByBothPasses) {
  PlanningCase problem = device_of_each_host(0.03);
  Plan plan = *plan_search(problem.request());
  plan.shard_optimizer = true;
  ASSERT_TRUE(predict(problem.request(), &plan));
  // Half as long are gradients beside 40 ms, and weights beside 20 ms.
  const double exposed = 2 * first_layer_of(problem) * 0.015;
  EXPECT_NEAR(plan.prediction.communication_seconds, exposed, 1e-6);
  EXPECT_NEAR(plan.prediction.hidden_seconds, 0.03 - exposed, 1e-6);
}

/// With a GPU sums come after computing: without it the CPUs are quicker.
TEST(SumsBeside, MakeSomeDevicesQuickerThanAll) {
  PlanningCase problem = device_of_each_host(0.03);
  problem.job.parallel.data.reset();
  problem.add({.host = "c", .fixed = 0, .per_sample = 0.2});
  problem.fleet.devices.back().kind = DeviceKind::kCuda;
  problem.fleet.devices.back().paced.reset();
  EXPECT_EQ(plans_with_sums_beside(problem.request()), PlansBeside::kOfSome);
  const Result<Plan> plan = search_all_forms(problem.request(), free_memory(problem.job.model));
  ASSERT_TRUE(plan) << plan.error().to_string();
  EXPECT_EQ(plan->world_size(), 2);
  EXPECT_NEAR(plan->prediction.step_seconds, 0.061 + first_layer_of(problem) * 0.03, 1e-12);
  EXPECT_LE(plan->search.lower_bound_step_seconds, plan->prediction.step_seconds);
  ASSERT_EQ(plan->left_out.size(), 1U);
  EXPECT_EQ(plan->left_out[0].device, "c/0");
  const Result<Plan> plain = plan_search(problem.request());
  EXPECT_EQ(plain->prediction.step_seconds, plan->prediction.step_seconds);
  ASSERT_EQ(plain->left_out.size(), 1U);
  PlanRequest again = problem.request();
  again.previous = &*plan;
  const Result<Plan> replanned = search_all_forms(again, free_memory(problem.job.model));
  EXPECT_EQ(replanned->prediction.step_seconds, plan->prediction.step_seconds);
  EXPECT_LE(replanned->search.lower_bound_step_seconds, plan->prediction.step_seconds);
}

}  // namespace
}  // namespace motley
