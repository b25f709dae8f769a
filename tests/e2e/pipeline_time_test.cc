// A paced pipeline takes the time that the event simulation says, and stands where it says at every
// moment: under the virtual clock both follow from the formula of DESIGN.md §4 alone.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/spec/precisions.h"
#include "planner/costs/pipeline_simulation.h"
#include "tests/e2e/small_run.h"
#include "worker/engine/engine.h"
#include "worker/train/rank_share.h"
#include "worker/train/world.h"

namespace motley::testing {
namespace {

using Stage = SmallReplica::Stage;

struct PacedPlan {
  std::string name;
  std::vector<SmallReplica> replicas;
  std::vector<double> speeds;  ///< of each rank
  int samples_missing = 0;
  bool shard_optimizer = false;
};

/// Of a model with eight layers: six blocks, embedding and head.
std::vector<PacedPlan> plans() {
  return {
      {"even pair", {{.stages = {{4}, {4}}, .grains = 8}}, {1, 1}},
      {"uneven pair", {{.stages = {{6}, {2}}, .grains = 8}}, {1, 1}},
      {"uneven pair by speed", {{.stages = {{6}, {2}}, .grains = 8}}, {3, 1}},
      {"slow first", {{.stages = {{4}, {4}}, .grains = 6, .micro_batch_grains = 2}}, {0.4, 1.7}},
      {"slow last", {{.stages = {{4}, {4}}, .grains = 6}}, {1.7, 0.4}},
      {"three", {{.stages = {{3}, {3}, {2}}, .grains = 9}}, {1, 0.8, 0.6}},
      {"slow in the middle", {{.stages = {{3}, {2}, {3}}, .grains = 5}}, {1, 0.2, 1}},
      {"four", {{.stages = {{2}, {2}, {2}, {2}}, .grains = 10}}, {1, 1, 1, 1}},
      {"five unlike", {{.stages = {{1}, {3}, {1}, {2}, {1}}, .grains = 7}}, {0.5, 2, 0.7, 1.3, 1}},
      {"more stages than micro-batches",
       {{.stages = {{2}, {1}, {3}, {1}, {1}}, .grains = 3}},
       {1, 0.5, 2, 1, 1}},
      {"one micro-batch",
       {{.stages = {{3}, {2}, {3}}, .grains = 4, .micro_batch_grains = 4}},
       {1, 0.6, 1}},
      {"short last micro-batch",
       {{.stages = {{3}, {3}, {2}}, .grains = 8, .micro_batch_grains = 3}},
       {1, 0.7, 1.2}},
      {"shorter still, by a sample",
       {{.stages = {{5}, {3}}, .grains = 5, .micro_batch_grains = 2}},
       {1.5, 1},
       1},
      {"beside a whole model",
       {{.stages = {{8}}, .grains = 5, .micro_batch_grains = 2},
        {.stages = {{2}, {6}}, .grains = 4}},
       {1.5, 0.5, 1}},
      {"unlike replicas",
       {{.stages = {{5}, {3}}, .grains = 5, .micro_batch_grains = 2},
        {.stages = {{2}, {2}, {4}}, .grains = 6}},
       {1, 0.6, 0.9, 0.4, 1.1}},
      {"sharded state", {{.stages = {{2}, {4}, {2}}, .grains = 6}}, {0.3, 1, 0.8}, 0, true},
  };
}

Attempt attempt_of(const PacedPlan& plan, const std::string& directory) {
  SmallRun run;
  run.speeds = plan.speeds;
  run.model.layers = 6;
  run.replicas = plan.replicas;
  run.samples_missing = plan.samples_missing;
  run.shard_optimizer = plan.shard_optimizer;
  run.steps = 3;
  Attempt attempt = small_attempt(run, directory);
  attempt.trace = true;
  attempt.fleet.pace_flops = 2e8;
  for (DeviceSpec& device : attempt.fleet.devices) device.paced->half_batch = 0.7;
  return attempt;
}

/// DESIGN.md §4, without the overhead; b samples.
double seconds(const Attempt& attempt, const DeviceSpec& device, double flops, double b) {
  const double half = device.paced->half_batch;
  return flops / (attempt.fleet.pace_flops * device.paced->speed * b / (b + half));
}

/// What the formula says of one rank that has a stage for itself.
StageTimes times_of(const Attempt& attempt, Rank rank) {
  const Role role = role_of(attempt.plan, rank);
  const auto stages =
      static_cast<int>(attempt.plan.replicas[static_cast<size_t>(role.replica)].stages.size());
  const DeviceSpec& spec = attempt.fleet.devices[static_cast<size_t>(rank.value())];
  const auto device = open_device_for(attempt.job, spec, precision_computed(attempt.job, spec));
  const auto engine =
      Engine::create(**device, engine_options(attempt.job, attempt.plan, rank)).value();
  const RankShare share = share_of(attempt.plan, rank, 0);
  StageTimes times;
  for (const SampleRange& range : share.micro_batches) {
    const auto number = static_cast<int>(times.forward.size());
    const Engine::Work work = engine->flops(range.count);
    // A section begins where something was received or sent, and there pays the overhead: not
    // between the last stage's forward and backward pass, not between the first's backward and next
    // forward pass, and where there is one stage only at the step's begin.
    const bool forward_begins = role.stage > 0 || number < (stages > 1 ? share.in_flight : 1);
    const bool backward_begins = role.stage + 1 < stages;
    const auto length = [&](double flops, bool begins) {
      return nanos_of_seconds(seconds(attempt, spec, flops, range.count)) +
             (begins ? spec.paced->overhead : Nanos(0));
    };
    times.forward.push_back(length(work.forward, forward_begins));
    times.backward.push_back(length(work.backward, backward_begins));
  }
  times.ready = nanos_of_seconds(update_flops(engine->updated_elements()) /
                                 (attempt.fleet.pace_flops * spec.paced->speed));
  return times;
}

/// By replica and stage.
std::vector<std::vector<StageTimes>> times_of(const Attempt& attempt) {
  std::vector<std::vector<StageTimes>> replicas;
  Nanos last_ready{0};
  for (const ReplicaPlan& replica : attempt.plan.replicas) {
    replicas.emplace_back();
    for (const StagePlan& stage : replica.stages) {
      replicas.back().push_back(times_of(attempt, stage.ranks.front()));
      last_ready = std::max(last_ready, replicas.back().back().ready);
    }
  }
  if (attempt.plan.shard_optimizer)  // weights are exchanged before anybody goes on
    for (auto& replica : replicas)
      for (StageTimes& times : replica) times.ready = last_ready;
  return replicas;
}

/// A rank's forward and backward passes of a step, from the step's begin.
std::vector<TimedAction> traced_actions(const nlohmann::json& trace, int64_t step) {
  const auto nanos = [](const nlohmann::json& microseconds) {
    return nanos_of_seconds(microseconds.get<double>() * 1e-6);
  };
  Nanos origin{0};
  std::vector<TimedAction> actions;
  for (const auto& event : trace) {
    if (event["ph"] != "X" || event["args"]["step"] != step) continue;
    if (event["cat"] == "step") origin = nanos(event["ts"]);
    if (event["cat"] != "compute" || !event["args"].contains("micro_batch")) continue;
    const bool backward = event["name"].get<std::string>().starts_with("backward");
    const Nanos begin = nanos(event["ts"]);
    actions.push_back(
        {{backward, event["args"]["micro_batch"].get<int>()}, begin, begin + nanos(event["dur"])});
  }
  for (TimedAction& timed : actions) {
    timed.begin = timed.begin - origin;
    timed.end = timed.end - origin;
  }
  return actions;
}

void expect_same_actions(const std::vector<TimedAction>& traced,
                         const std::vector<TimedAction>& simulated, double tolerance,
                         const std::string& where) {
  ASSERT_EQ(traced.size(), simulated.size()) << where;
  for (size_t i = 0; i < traced.size(); ++i) {
    ASSERT_EQ(traced[i].action, simulated[i].action) << where << ", action " << i;
    EXPECT_NEAR(seconds_of(traced[i].begin), seconds_of(simulated[i].begin), tolerance)
        << where << ", begin of action " << i;
    EXPECT_NEAR(seconds_of(traced[i].end), seconds_of(simulated[i].end), tolerance)
        << where << ", end of action " << i;
  }
}

int most_open(const std::vector<TimedAction>& actions) {
  int open = 0, most = 0;
  for (const TimedAction& timed : actions)
    most = std::max(most, open += timed.action.backward ? -1 : 1);
  return most;
}

class PipelineTime : public ::testing::Test {
 protected:
  TemporaryDirectory scratch_;
};

TEST_F(PipelineTime, PacedPlansTakeWhatTheSimulationSays) {
  constexpr int64_t kStep = 3;
  for (const PacedPlan& plan : plans()) {
    SCOPED_TRACE(plan.name);
    const Attempt attempt = attempt_of(plan, scratch_.path() + "/" + plan.name);
    Recorder recorder;
    const auto outcome = run_small(attempt, recorder);
    ASSERT_TRUE(outcome) << outcome.error().to_string();

    const auto replicas = times_of(attempt);
    const double step_seconds = seconds_of(simulate_step(replicas));
    const double tolerance = 1e-5 * step_seconds;  // sections are rounded to nanoseconds
    for (int rank = 0; rank < attempt.plan.world_size(); ++rank) {
      const StepReport& report = recorder.account(rank).steps.at(kStep);
      const Role role = role_of(attempt.plan, Rank(rank));
      const auto timeline = simulate_pipeline(replicas[static_cast<size_t>(role.replica)]);
      const StageTimeline& line = timeline.stages[static_cast<size_t>(role.stage)];
      EXPECT_NEAR(report.step_seconds, step_seconds, tolerance);
      EXPECT_NEAR(report.compute_seconds, seconds_of(line.busy), tolerance);
      EXPECT_NEAR(report.compute_seconds + report.update_seconds + report.wait_seconds,
                  report.step_seconds, tolerance);

      const auto traced = traced_actions(trace_of(attempt, rank), kStep);
      expect_same_actions(traced, line.actions, tolerance, "rank " + std::to_string(rank));
      EXPECT_EQ(most_open(traced), share_of(attempt.plan, Rank(rank), 0).in_flight);
    }
  }
}

/// Begin and end of what a rank did in a step, by name.
std::map<std::string, std::pair<double, double>> spans_of(const nlohmann::json& trace,
                                                          int64_t step) {
  std::map<std::string, std::pair<double, double>> spans;
  for (const auto& event : trace) {
    if (event["ph"] != "X" || event["args"]["step"] != step) continue;
    const double begin = event["ts"], duration = event["dur"];
    spans[event["name"]] = {begin, begin + duration};
  }
  return spans;
}

/// In real time: the second stage is still busy with micro-batch 0 when the first has sent it the
/// next one, which therefore stays on its way; the first computes micro-batch 2 meanwhile.
TEST_F(PipelineTime, AStageComputesWhileWhatItSentIsOnItsWay) {
  PacedPlan plan{.name = "overlap",
                 .replicas = {{.stages = {{2}, {3}, {3}}, .grains = 4}},
                 .speeds = {1, 0.4, 0.4}};
  Attempt attempt = attempt_of(plan, scratch_.path() + "/run");
  attempt.fleet.clock = PaceClock::kSleep;
  attempt.fleet.pace_flops = 2.5e8;
  Recorder recorder;
  ASSERT_TRUE(run_small(attempt, recorder));
  double waited_for_sends = 0, computed = 0;
  int64_t overlapping = 0;
  for (int64_t step = 1; step <= attempt.job.train.steps; ++step) {
    const auto first = spans_of(trace_of(attempt, 0), step);
    const auto second = spans_of(trace_of(attempt, 1), step);
    const auto [begin, end] = first.at("forward 2");
    overlapping += first.at("send 1").second <= begin && end < second.at("receive 1").second;
    for (const auto& [name, span] : first) {
      if (name.starts_with("wait for send")) waited_for_sends += span.second - span.first;
      if (name.starts_with("forward")) computed += span.second - span.first;
    }
  }
  EXPECT_GE(overlapping, attempt.job.train.steps - 1) << "once something else may come between";
  EXPECT_LT(waited_for_sends, computed / 10);
}

TEST_F(PipelineTime, TheBubbleOfEqualStagesIsTheTextbooks) {
  for (const int micro_batches : {1, 4, 12}) {
    const PacedPlan plan{.name = std::to_string(micro_batches),
                         .replicas = {{.stages = {{4}, {4}}, .grains = micro_batches}},
                         .speeds = {}};
    Attempt attempt = attempt_of(plan, scratch_.path() + "/" + plan.name);
    const auto work = [](const StageTimes& times) {
      return seconds_of(times.forward[0]) + seconds_of(times.backward[0]);
    };
    for (DeviceSpec& device : attempt.fleet.devices) device.paced->overhead = Nanos(0);
    // The second device makes up for what the stages differ in.
    const auto stages = times_of(attempt).front();
    attempt.fleet.devices[1].paced->speed = work(stages[1]) / work(stages[0]);

    Recorder recorder;
    ASSERT_TRUE(run_small(attempt, recorder));
    const StepReport& report = recorder.account(0).steps.at(1);  // no update before it
    const double bubble = 1 - report.compute_seconds / report.step_seconds;
    EXPECT_NEAR(bubble, 1.0 / (1 + micro_batches), 0.01);
  }
}

}  // namespace
}  // namespace motley::testing
