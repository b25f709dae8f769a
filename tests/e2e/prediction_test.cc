// What is predicted of plans that are cut, from nothing but measured curves, is what their steps
// then take under the virtual clock; and two unlike replicas lose little of what their devices
// could do.

#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "core/spec/names.h"
#include "planner/costs/cost_model.h"
#include "planner/plain/search.h"
#include "tests/e2e/small_run.h"
#include "tests/support/measured_fleet.h"
#include "worker/train/rank_memory.h"

namespace motley::testing {
namespace {

/// A plan for a model with six blocks, embedding and head; by default on equal devices.
struct Case {
  std::string name;
  std::vector<SmallReplica> replicas;
  std::vector<double> speeds = {};
  bool shard_optimizer = false;
  bool host_optimizer = false;
  int samples_missing = 0;
  Numerics numerics = Numerics::kFast;
};

std::vector<Recompute> all_of(int layers, Recompute part) {
  return std::vector<Recompute>(static_cast<size_t>(layers), part);
}

std::vector<Case> cases() {
  using R = Recompute;
  return {
      {"plain", {{.stages = {{8}}, .grains = 5, .micro_batch_grains = 2}}},
      {"plain pair", {{.stages = {{8}}, .grains = 5}, {.stages = {{8}}, .grains = 2}}, {1, 0.4}},
      {"recomputing all", {{.stages = {{8, {1}, all_of(8, R::kBlock)}}, .grains = 4}}},
      {"even pair", {{.stages = {{4}, {4}}, .grains = 8}}},
      {"uneven by speed", {{.stages = {{6}, {2}}, .grains = 8}}, {3, 1}},
      {"slow first", {{.stages = {{4}, {4}}, .grains = 6, .micro_batch_grains = 2}}, {0.4, 1.7}},
      {"slow in the middle", {{.stages = {{3}, {2}, {3}}, .grains = 5}}, {1, 0.2, 1}},
      {"five unlike", {{.stages = {{1}, {3}, {1}, {2}, {1}}, .grains = 7}}, {0.5, 2, 0.7, 1.3, 1}},
      {"short last micro-batch",
       {{.stages = {{3}, {3}, {2}}, .grains = 8, .micro_batch_grains = 3}},
       {1, 0.7, 1.2},
       false,
       false,
       1},
      {"recomputing by stage",
       {{.stages = {{4, {1}, all_of(4, R::kAttention)}, {4, {1}, all_of(4, R::kMlp)}},
         .grains = 6}},
       {1, 0.8}},
      {"beside a whole model",
       {{.stages = {{8}}, .grains = 5, .micro_batch_grains = 2},
        {.stages = {{2}, {6}}, .grains = 4}},
       {1.5, 0.5, 1}},
      {"sharded state", {{.stages = {{2}, {4}, {2}}, .grains = 6}}, {0.3, 1, 0.8}, true},
      {"sharded unlike replicas",
       {{.stages = {{8}}, .grains = 5}, {.stages = {{4}, {4}}, .grains = 3}},
       {1.5, 0.5, 0.6},
       true},
      {"state in host memory", {{.stages = {{4}, {4}}, .grains = 4}}, {}, false, true},
      {"tensor", {{.stages = {{8, {0.5, 0.5}}}, .grains = 4}}},
      {"tensor, uneven by speed", {{.stages = {{8, {0.75, 0.25}}}, .grains = 4}}, {3, 1}},
      {"tensor against speed", {{.stages = {{8, {0.25, 0.75}}}, .grains = 4}}, {3, 1}},
      {"pipeline of tensors",
       {{.stages = {{4, {0.75, 0.25}}, {4, {0.5, 0.5}}}, .grains = 6}},
       {0.9, 0.3, 0.6, 0.6}},
      {"tensor, recomputing",
       {{.stages = {{4, {0.5, 0.5}, all_of(4, R::kBlock)}, {4}}, .grains = 6}},
       {0.5, 0.5, 1}},
      {"exact", {{.stages = {{5}, {3}}, .grains = 6}}, {1, 0.6}, false, false, 0, Numerics::kExact},
  };
}

Attempt attempt_of(const Case& plan, const std::string& directory) {
  SmallRun run;
  run.model = {.type = "gpt", .layers = 6, .heads = 8, .width = 32, .context = 16, .vocab = 256};
  run.replicas = plan.replicas;
  run.speeds = plan.speeds;
  run.shard_optimizer = plan.shard_optimizer;
  run.host_optimizer = plan.host_optimizer;
  run.samples_missing = plan.samples_missing;
  run.numerics = plan.numerics;
  run.steps = 3;
  Attempt attempt = small_attempt(run, directory);
  attempt.fleet.pace_flops = 2e8;
  for (DeviceSpec& device : attempt.fleet.devices) device.paced->half_batch = 0.7;
  return attempt;
}

Bytes needed(const Attempt& attempt, int rank) {
  return estimate_rank(attempt.job, attempt.plan, Rank(rank), {}).total();
}

void predict_from(const Profile& profile, Attempt* attempt) {
  const PlanRequest request{attempt->job, attempt->fleet, profile};
  std::vector<RankMemory> counted;
  for (int rank = 0; rank < attempt->plan.world_size(); ++rank)
    counted.push_back({.total = needed(*attempt, rank)});
  const auto predicted = predict(request, &attempt->plan, counted);
  ASSERT_TRUE(predicted) << predicted.error().to_string();
  const auto valid = validate(attempt->plan, attempt->job.model);
  ASSERT_TRUE(valid) << valid.error().to_string();
}

class PredictionTest : public ::testing::Test {
 protected:
  /// What each rank reports of the third step, the first whose like will follow.
  std::vector<StepReport> third_step(const Attempt& attempt) {
    Recorder recorder;
    const auto outcome = run_small(attempt, recorder);
    EXPECT_TRUE(outcome) << (outcome ? "" : outcome.error().to_string());
    std::vector<StepReport> reports;
    for (int rank = 0; outcome && rank < attempt.plan.world_size(); ++rank)
      reports.push_back(recorder.account(rank).steps.at(3));
    return reports;
  }

  TemporaryDirectory scratch_;
};

TEST_F(PredictionTest, OfAnyPlanIsWhatItsStepTakes) {
  for (const Case& plan : cases()) {
    SCOPED_TRACE(plan.name);
    Attempt attempt = attempt_of(plan, scratch_.path() + "/" + plan.name);
    const Profile profile = measured_by_threads(attempt.job, attempt.fleet);
    predict_from(profile, &attempt);
    const Prediction& predicted = attempt.plan.prediction;
    const auto reports = third_step(attempt);
    ASSERT_EQ(reports.size(), predicted.ranks.size());
    const double step = reports[0].step_seconds;
    std::printf("%-28s predicted %.4f s, took %.4f s\n", plan.name.c_str(), predicted.step_seconds,
                step);
    EXPECT_NEAR(predicted.step_seconds / step, 1, 0.05);
    EXPECT_NEAR(predicted.compute_seconds + predicted.update_seconds + predicted.bubble_seconds +
                    predicted.communication_seconds,
                predicted.step_seconds, 1e-12);
    for (size_t rank = 0; rank < reports.size(); ++rank) {
      EXPECT_NEAR(predicted.ranks[rank].compute_seconds / reports[rank].compute_seconds, 1, 0.05);
      EXPECT_NEAR(predicted.ranks[rank].update_seconds, reports[rank].update_seconds, 1e-6);
      EXPECT_NEAR(predicted.ranks[rank].wait_seconds, reports[rank].wait_seconds, 0.05 * step);
    }
  }
}

TEST_F(PredictionTest, OfMemoryOfASearchedPlanIsWhatItsRanksCount) {
  for (const Numerics numerics : {Numerics::kFast, Numerics::kExact}) {
    for (const int devices : {1, 2, 4}) {
      SCOPED_TRACE(std::to_string(devices) + " devices");
      const std::vector<SmallReplica> all(static_cast<size_t>(devices),
                                          {.stages = {{8}}, .grains = 3});
      Attempt attempt =
          attempt_of({.name = "", .replicas = all, .numerics = numerics},
                     scratch_.path() + "/" + std::to_string(devices) + spec_name(numerics));
      const Profile profile = measured_by_threads(attempt.job, attempt.fleet);
      const auto plan = plan_search({attempt.job, attempt.fleet, profile});
      ASSERT_TRUE(plan) << plan.error().to_string();
      attempt.plan = *plan;
      EXPECT_EQ(plan->world_size(), devices);
      for (const RankPrediction& rank : plan->prediction.ranks) {
        // From a table, so not to the byte; never too little.
        const auto bytes = static_cast<double>(needed(attempt, rank.rank.value()).value());
        EXPECT_GE(static_cast<double>(rank.memory.value()), bytes);
        EXPECT_LE(static_cast<double>(rank.memory.value()), 1.05 * bytes);
      }
    }
  }
}

// --- plans that just fit

/// Limits are what the plan needs, to the byte.
void leave_no_memory(Attempt* attempt) {
  for (int rank = 0; rank < attempt->plan.world_size(); ++rank)
    attempt->fleet.devices[static_cast<size_t>(rank)].memory = needed(*attempt, rank);
}

Attempt large_vocabulary(const Case& plan, const std::string& directory) {
  Attempt attempt = attempt_of(plan, directory);
  attempt.job.model.vocab = 4001;
  attempt.plan.owners = even_ownership(attempt.plan, attempt.job.model);
  leave_no_memory(&attempt);
  return attempt;
}

TEST_F(PredictionTest, OfPlansThatJustFitThoughTheirLayersDoNotFitEachDevice) {
  const std::vector<Case> plans = {
      {"two blocks for the small", {{.stages = {{3}, {2}, {3}}, .grains = 4}}},
      {"vocabulary over two", {{.stages = {{8, {0.5, 0.5}}}, .grains = 4}}},
      {"vocabulary over two, unevenly", {{.stages = {{8, {0.625, 0.375}}}, .grains = 4}}},
      {"recomputing over two",
       {{.stages = {{8, {0.5, 0.5}, all_of(8, Recompute::kBlock)}}, .grains = 4}}},
      {"state in host memory", {{.stages = {{1}, {6}, {1}}, .grains = 4}}, {}, false, true},
      {"sharded state",
       {{.stages = {{4}, {4}}, .grains = 2}, {.stages = {{4}, {4}}, .grains = 2}},
       {},
       true},
  };
  for (const Case& plan : plans) {
    SCOPED_TRACE(plan.name);
    Attempt attempt = large_vocabulary(plan, scratch_.path() + "/" + plan.name);
    predict_from(measured_by_threads(attempt.job, attempt.fleet), &attempt);
    const auto reports = third_step(attempt);
    ASSERT_FALSE(reports.empty());
    const double predicted = attempt.plan.prediction.step_seconds;
    std::printf("%-32s predicted %.4f s, took %.4f s\n", plan.name.c_str(), predicted,
                reports[0].step_seconds);
    EXPECT_NEAR(predicted / reports[0].step_seconds, 1, 0.05);
  }
}

// --- unlike replicas

/// Twelve blocks; a device of speed 1 beside two of a quarter of it.
Attempt unlike_attempt(const std::vector<SmallReplica>& replicas, const std::vector<double>& speeds,
                       const std::string& directory) {
  SmallRun run;
  run.model = {.type = "gpt", .layers = 12, .heads = 4, .width = 64, .context = 16, .vocab = 256};
  run.replicas = replicas;
  run.speeds = speeds;
  run.grain = 1;
  run.steps = 3;
  Attempt attempt = small_attempt(run, directory);
  for (DeviceSpec& device : attempt.fleet.devices) device.paced->overhead = Nanos(100'000);
  return attempt;
}

/// Of one rank that has all of it, with all that it holds besides its engine.
Bytes whole_model_bytes(const Attempt& attempt) {
  Plan alone = attempt.plan;
  alone.ranks.resize(1);
  alone.replicas = {{.stages = {{0, attempt.job.model.layers + 1, {Rank(0)}, {1.0}}},
                     .micro_batch = 1,
                     .grains = alone.global_batch}};
  alone.owners = even_ownership(alone, attempt.job.model);
  return estimate_rank(attempt.job, alone, Rank(0), {}).total();
}

/// Runs it on devices that each hold the model alone, or lack a tenth for that.
void expect_little_lost(Attempt attempt, const std::vector<bool>& holds_model,
                        const std::function<std::vector<StepReport>(const Attempt&)>& third_step) {
  const Bytes whole = whole_model_bytes(attempt);
  for (size_t rank = 0; rank < holds_model.size(); ++rank)
    if (!holds_model[rank]) attempt.fleet.devices[rank].memory = Bytes(whole.value() * 9 / 10);
  const Profile profile = measured_by_threads(attempt.job, attempt.fleet);
  for (size_t rank = 0; rank < holds_model.size(); ++rank) {
    const DeviceProfile& device = profile.devices[rank];
    EXPECT_EQ(whole <= device.memory_limit, holds_model[rank]);
    EXPECT_NE(device.curve("block"), nullptr);
  }
  predict_from(profile, &attempt);
  const Prediction& predicted = attempt.plan.prediction;
  const auto reports = third_step(attempt);
  ASSERT_FALSE(reports.empty());
  const double speed = attempt.plan.global_batch / reports[0].step_seconds;
  const double efficiency = speed / predicted.solo_sum_samples_per_second;
  std::printf("%.1f samples/s of %.1f: %.1f %%\n", speed, predicted.solo_sum_samples_per_second,
              100 * efficiency);
  EXPECT_GE(efficiency, 0.90);
  EXPECT_LE(efficiency, 1.0);
  EXPECT_NEAR(predicted.step_seconds / reports[0].step_seconds, 1, 0.05);
  EXPECT_GE(predicted.integer_bound_efficiency, efficiency);
}

TEST_F(PredictionTest, OneBigBesideTwoSmallThatHoldTheModelOnlyTogether) {
  expect_little_lost(unlike_attempt({{.stages = {{14}}, .grains = 44, .micro_batch_grains = 11},
                                     {.stages = {{7}, {7}}, .grains = 21}},
                                    {1, 0.25, 0.25}, scratch_.path()),
                     {true, false, false},
                     [&](const Attempt& attempt) { return third_step(attempt); });
}

TEST_F(PredictionTest, ThreeOfWhichNoneHoldsTheModel) {
  expect_little_lost(
      unlike_attempt({{.stages = {{3}, {2}, {9}}, .grains = 64}}, {0.25, 0.25, 1}, scratch_.path()),
      {false, false, false}, [&](const Attempt& attempt) { return third_step(attempt); });
}

TEST_F(PredictionTest, TwoUnlikeReplicasOfWhichNoDeviceHoldsTheModel) {
  expect_little_lost(unlike_attempt({{.stages = {{8}, {6}}, .grains = 44},
                                     {.stages = {{7, {0.5, 0.5}}, {7}}, .grains = 20}},
                                    {1, 0.8, 0.2, 0.2, 0.4}, scratch_.path()),
                     {false, false, false, false, false},
                     [&](const Attempt& attempt) { return third_step(attempt); });
}

}  // namespace
}  // namespace motley::testing
