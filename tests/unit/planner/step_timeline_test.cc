// The timeline of a step: adds up for every rank, and says what the prediction says.

#include "planner/costs/step_timeline.h"

#include <gtest/gtest.h>

#include <map>

#include "core/holdings.h"
#include "core/plan_completion.h"
#include "planner/costs/cost_model.h"
#include "planner/plain/search.h"
#include "tests/support/planning_case.h"

namespace motley {
namespace {

using testing::PlanningCase;
using testing::random_case;

LayerCurve timed_layer(const std::string& layer, double per_sample, double share, int sums = 0) {
  LayerCurve curve;
  curve.layer = layer;
  curve.share = share;
  curve.sums = sums;
  curve.sum_bytes_per_sample = 1e6 * sums;
  for (const int size : {1, 2, 4, 8})
    curve.points.push_back(
        {size, per_sample * size * share, 0, 5, 0.25 * per_sample * size * share});
  curve.fit = fit_curve(curve.points);
  return curve;
}

/// Devices of rising slowness, on two hosts, of which none holds the model of two blocks.
PlanningCase layered_case(int devices) {
  PlanningCase problem(8);
  problem.job.model = {"gpt", 2, 4, 8, 16, 32};
  for (int i = 0; i < devices; ++i) {
    problem.add(
        {.host = 2 * i < devices ? "a" : "b", .step_overhead = 0.0001, .update = 0.001 * (i + 1)});
    DeviceProfile& device = problem.profile.devices.back();
    device.curves.clear();
    for (const auto& [layer, seconds] :
         {std::pair("embedding", 0.001), std::pair("block", 0.004), std::pair("head", 0.002)}) {
      device.curves.push_back(timed_layer(layer, seconds * (i + 1), 1));
      for (const double share : {0.25, 0.75})
        device.curves.push_back(timed_layer(layer, seconds * (i + 1), share, 2));
    }
  }
  problem.add_link("a", "b", 0.0002, 1e8);
  return problem;
}

StagePlan layers_on(LayerIndex first, LayerIndex last, std::vector<int> ranks,
                    std::vector<double> shares = {1.0}) {
  StagePlan stage;
  stage.first_layer = first;
  stage.last_layer = last;
  for (const int rank : ranks) stage.ranks.emplace_back(rank);
  stage.shares = std::move(shares);
  return stage;
}

Plan priced(const PlanningCase& problem, std::vector<ReplicaPlan> replicas, bool sharded = false) {
  Plan plan;
  plan.global_batch = problem.job.train.global_batch;
  plan.grain = problem.job.train.grain.value_or(1);
  for (const DeviceSpec& device : problem.fleet.devices)
    plan.ranks.push_back({device.id, device.host, device.type});
  plan.replicas = std::move(replicas);
  plan.shard_optimizer = sharded;
  const auto completed = complete(problem.job, problem.fleet, &plan);
  EXPECT_TRUE(completed) << completed.error().to_string();
  const auto predicted = predict(problem.request(), &plan);
  EXPECT_TRUE(predicted) << predicted.error().to_string();
  return plan;
}

StepTimeline timeline_of(const PlanRequest& request, const Plan& plan) {
  const auto timeline = step_timeline(request, plan);
  EXPECT_TRUE(timeline) << timeline.error().to_string();
  return timeline ? *timeline : StepTimeline{};
}

/// A pass of the rank, by what it is and the number of its micro-batch.
using Passes = std::map<std::pair<SpanKind, int>, TimelineSpan>;
Passes passes_of(const RankTimeline& line) {
  Passes passes;
  for (const TimelineSpan& span : line.spans) {
    if (span.waiting || (span.kind != SpanKind::kForward && span.kind != SpanKind::kBackward))
      continue;
    EXPECT_TRUE(passes.insert({{span.kind, span.micro_batch}, span}).second)
        << "a pass in two spans";
  }
  return passes;
}

/// Contiguous from 0 to the step's end, and as the prediction has it.
void expect_adds_up(const PlanRequest& request, const Plan& plan) {
  const StepTimeline timeline = timeline_of(request, plan);
  EXPECT_EQ(timeline.step, nanos_of_seconds(plan.prediction.step_seconds));
  ASSERT_EQ(timeline.ranks.size(), plan.ranks.size());
  for (size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    const RankTimeline& line = timeline.ranks[rank];
    const RankPrediction& predicted = plan.prediction.ranks[rank];
    Nanos now{0};
    for (const TimelineSpan& span : line.spans) {
      EXPECT_EQ(span.begin, now) << "rank " << rank;
      EXPECT_GT(span.end, span.begin);
      now = span.end;
    }
    EXPECT_EQ(now, timeline.step) << "rank " << rank;
    const Nanos busy = line.time_in(SpanClass::kBusy);
    EXPECT_EQ(busy + line.time_in(SpanClass::kWaiting) + line.time_in(SpanClass::kCommunicating),
              timeline.step);
    EXPECT_NEAR(seconds_of(busy), predicted.section_seconds(), 1e-6) << "rank " << rank;
    const Role role = role_of(plan, Rank(static_cast<int>(rank)));
    const Passes passes = passes_of(line);
    EXPECT_EQ(passes.size(), 2 * micro_batches_of(plan, role.replica).size()) << "rank " << rank;
    for (size_t i = 0; i < passes.size() / 2; ++i) {
      const auto number = static_cast<int>(i);
      EXPECT_GE(passes.at({SpanKind::kBackward, number}).begin,
                passes.at({SpanKind::kForward, number}).end);
    }
  }
}

TEST(StepTimeline, OfPlansThatWereSearchedAddsUp) {
  std::mt19937 random(20);
  int seen = 0;
  for (int i = 0; i < 60; ++i) {
    const PlanningCase problem = random_case(random, 5);
    const auto plan = plan_search(problem.request());
    if (!plan) continue;
    ++seen;
    expect_adds_up(problem.request(), *plan);
  }
  EXPECT_GT(seen, 20);
}

TEST(StepTimeline, OfPlansThatAreCutAddsUp) {
  const PlanningCase problem = layered_case(4);
  const std::vector<StagePlan> pipeline = {layers_on(0, 1, {0}), layers_on(2, 3, {1})};
  const std::vector<StagePlan> shared = {layers_on(0, 3, {2, 3}, {0.75, 0.25})};
  const std::vector<StagePlan> mixed = {layers_on(0, 1, {0, 1}, {0.5, 0.5}), layers_on(2, 2, {2}),
                                        layers_on(3, 3, {3})};
  for (const bool sharded : {false, true}) {
    expect_adds_up(problem.request(), priced(problem, {{pipeline, 1, 5}, {shared, 2, 3}}, sharded));
    expect_adds_up(problem.request(), priced(problem, {{mixed, 3, 8}}, sharded));
  }
}

TEST(StepTimeline, ADeviceAloneIsNeverIdle) {
  PlanningCase problem(10);
  problem.add({.fixed = 0.001, .per_sample = 0.01, .step_overhead = 0.002, .update = 0.004});
  Plan plan = priced(problem, {{{layers_on(0, 2, {0})}, 4, 10}});
  const StepTimeline timeline = timeline_of(problem.request(), plan);
  const std::vector<TimelineSpan>& spans = timeline.ranks[0].spans;
  ASSERT_EQ(spans.size(), 1U + 3 * 2);
  EXPECT_EQ(spans[0].kind, SpanKind::kUpdate);
  EXPECT_EQ(spans[0].end, Nanos(4'000'000));
  // Micro-batches of 4, 4 and 2 samples, of 41, 41 and 21 ms; a third of each forward.
  EXPECT_EQ(spans[2].end, Nanos(4'000'000 + 2'000'000 + 41'000'000));
  EXPECT_NEAR(static_cast<double>(spans[3].end.value()), 47e6 + 41e6 / 3, 1);
  EXPECT_EQ(spans[6].end, Nanos(109'000'000));
  EXPECT_EQ(timeline.step, Nanos(109'000'000));
}

TEST(StepTimeline, WhoIsFasterWaitsForTheSum) {
  PlanningCase problem(8);
  problem.add({.fixed = 0, .per_sample = 0.01}).add({.fixed = 0, .per_sample = 0.02});
  problem.add_reduction(2, 0.005);
  const Plan plan =
      priced(problem, {{{layers_on(0, 2, {0})}, 4, 4}, {{layers_on(0, 2, {1})}, 4, 4}});
  const StepTimeline timeline = timeline_of(problem.request(), plan);
  const std::vector<TimelineSpan>& fast = timeline.ranks[0].spans;
  ASSERT_EQ(fast.size(), 4U);
  EXPECT_TRUE(fast[2].waiting);
  EXPECT_EQ(fast[2].kind, SpanKind::kReduce);
  EXPECT_EQ(fast[2].end - fast[2].begin, Nanos(40'000'000));
  for (const RankTimeline& line : timeline.ranks) {
    EXPECT_EQ(line.spans.back().kind, SpanKind::kReduce);
    EXPECT_EQ(line.time_in(SpanClass::kCommunicating), Nanos(5'000'000));
  }
}

TEST(StepTimeline, ALaterStageBeginsWhenWhatItNeedsHasArrived) {
  const PlanningCase problem = layered_case(2);
  const Plan plan = priced(problem, {{{layers_on(0, 1, {0}), layers_on(2, 3, {1})}, 1, 8}});
  const StepTimeline timeline = timeline_of(problem.request(), plan);
  const Passes first = passes_of(timeline.ranks[0]), second = passes_of(timeline.ranks[1]);
  // 1 sample of 16 tokens of width 8 in 4 bytes, over 0.2 ms and 100 MB/s.
  const Nanos travels(200'000 + 16 * 8 * 4 * 10);
  for (int i = 0; i < 8; ++i) {
    EXPECT_GE(second.at({SpanKind::kForward, i}).begin,
              first.at({SpanKind::kForward, i}).end + travels);
    EXPECT_GE(first.at({SpanKind::kBackward, i}).begin,
              second.at({SpanKind::kBackward, i}).end + travels);
  }
  // The first stage gives up what it has computed before the second can begin: it has waited, and
  // then for as long as the activations travel it has received.
  const std::vector<TimelineSpan>& spans = timeline.ranks[1].spans;
  EXPECT_EQ(spans[0].kind, SpanKind::kUpdate);
  EXPECT_TRUE(spans[1].waiting);
  EXPECT_EQ(spans[1].kind, SpanKind::kReceive);
  EXPECT_EQ(spans[2].kind, SpanKind::kReceive);
  EXPECT_EQ(spans[2].end - spans[2].begin, travels);
}

TEST(StepTimeline, WhoSharesAStageSumsAsLongAsTheOthersTakeMore) {
  const PlanningCase problem = layered_case(2);
  const Plan plan = priced(problem, {{{layers_on(0, 3, {0, 1}, {0.5, 0.5})}, 2, 8}});
  const StepTimeline timeline = timeline_of(problem.request(), plan);
  const Passes fast = passes_of(timeline.ranks[0]), slow = passes_of(timeline.ranks[1]);
  for (const auto& [what, span] : fast) {
    EXPECT_EQ(span.begin, slow.at(what).begin);
    EXPECT_LT(span.end, slow.at(what).end);  // half the time on the device that is twice as fast
  }
  EXPECT_GT(timeline.ranks[0].time_in(SpanClass::kCommunicating),
            timeline.ranks[1].time_in(SpanClass::kCommunicating));
}

}  // namespace
}  // namespace motley
