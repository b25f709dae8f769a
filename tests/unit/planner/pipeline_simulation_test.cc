// The time line of 1F1B: by hand, against the textbook, and what holds of any.

#include "planner/costs/pipeline_simulation.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "planner/pipelines/pipeline_end.h"

namespace motley {
namespace {

StageTimes equal_times(int micro_batches, int64_t forward, int64_t backward) {
  const auto count = static_cast<size_t>(micro_batches);
  return {.forward = std::vector(count, Nanos(forward)),
          .backward = std::vector(count, Nanos(backward))};
}

/// Two stages, two micro-batches; the second stage is half as fast, and kept by an update:
///
///            0   2   4   6   8   10  12  14  16
///   stage 0  F F . . . . . . . B B . . . . B B        forward 1, backward 2
///   stage 1  u u u F F B B B B F F B B B B . .        forward 2, backward 4
TEST(PipelineSimulation, BeginsWhatIsNextAsSoonAsItCan) {
  StageTimes slow = equal_times(2, 2, 4);
  slow.ready = Nanos(3);
  const PipelineTimeline timeline = simulate_pipeline({equal_times(2, 1, 2), slow});
  const auto begins = [&](size_t stage) {
    std::vector<int64_t> times;
    for (const TimedAction& action : timeline.stages[stage].actions)
      times.push_back(action.begin.value());
    return times;
  };
  EXPECT_EQ(begins(0), (std::vector<int64_t>{0, 1, 9, 15}));
  EXPECT_EQ(begins(1), (std::vector<int64_t>{3, 5, 9, 11}));
  EXPECT_EQ(timeline.end, Nanos(17));
  EXPECT_EQ(timeline.stages[0].busy, Nanos(6));
  EXPECT_EQ(timeline.stages[0].idle, Nanos(11));
  EXPECT_EQ(timeline.stages[1].busy, Nanos(12));
  EXPECT_EQ(timeline.stages[1].idle, Nanos(2));
}

TEST(PipelineSimulation, AStepLastsUntilTheSlowestReplicaIsThrough) {
  const std::vector quick{equal_times(1, 1, 2)}, slow{equal_times(2, 3, 4)};
  EXPECT_EQ(simulate_step({quick, slow, quick}), Nanos(14));
}

/// Of S equal stages and m micro-batches each idles (S-1)/(S-1+m) of the step.
TEST(PipelineSimulation, EqualStagesHaveTheTextbooksBubble) {
  for (int stages = 1; stages <= 8; ++stages) {
    for (int micro_batches = 1; micro_batches <= 20; ++micro_batches) {
      const auto times = equal_times(micro_batches, 10, 20);
      const PipelineTimeline timeline =
          simulate_pipeline(std::vector<StageTimes>(static_cast<size_t>(stages), times));
      EXPECT_EQ(timeline.end, Nanos(30 * (stages - 1 + micro_batches)));
      for (const StageTimeline& line : timeline.stages)
        EXPECT_EQ(line.idle, Nanos(30 * (stages - 1))) << stages << " x " << micro_batches;
    }
  }
}

std::vector<StageTimes> any_pipeline() {
  const int stages = *rc::gen::inRange(1, 9);
  const auto micro_batches = static_cast<size_t>(*rc::gen::inRange(1, 17));
  const auto length =
      rc::gen::map(rc::gen::inRange<int64_t>(0, 1000), [](int64_t ns) { return Nanos(ns); });
  std::vector<StageTimes> pipeline;
  for (int stage = 0; stage < stages; ++stage)
    pipeline.push_back({.forward = *rc::gen::container<std::vector<Nanos>>(micro_batches, length),
                        .backward = *rc::gen::container<std::vector<Nanos>>(micro_batches, length),
                        .ready = *length});
  return pipeline;
}

RC_GTEST_PROP(PipelineSimulation, NothingBeginsBeforeItCanNorLater, ()) {
  const std::vector<StageTimes> pipeline = any_pipeline();
  const PipelineTimeline timeline = simulate_pipeline(pipeline);
  const auto end_of = [&](size_t stage, const PipelineAction& wanted) {
    const auto& actions = timeline.stages[stage].actions;
    return std::find_if(actions.begin(), actions.end(),
                        [&](const TimedAction& timed) { return timed.action == wanted; })
        ->end;
  };
  for (size_t stage = 0; stage < pipeline.size(); ++stage) {
    Nanos free = pipeline[stage].ready;
    for (const TimedAction& timed : timeline.stages[stage].actions) {
      Nanos arrived{0};
      const PipelineAction& action = timed.action;
      if (!action.backward && stage > 0) arrived = end_of(stage - 1, action);
      if (action.backward && stage + 1 < pipeline.size()) arrived = end_of(stage + 1, action);
      RC_ASSERT(timed.begin == std::max(free, arrived));
      free = timed.end;
    }
    RC_ASSERT(timeline.end >= free);
    const StageTimeline& line = timeline.stages[stage];
    RC_ASSERT(line.busy + line.idle + pipeline[stage].ready == timeline.end);
  }
}

TEST(PipelineSimulation, WhatIsSentTravelsWhileItsSenderGoesOn) {
  std::vector<StageTimes> stages(2);
  for (StageTimes& times : stages) {
    times.forward = {Nanos(10), Nanos(10)};
    times.backward = {Nanos(20), Nanos(20)};
  }
  stages[0].forward_travels = Nanos(5);
  stages[1].backward_travels = Nanos(7);
  const PipelineTimeline timeline = simulate_pipeline(stages);
  const std::vector<TimedAction>& first = timeline.stages[0].actions;
  const std::vector<TimedAction>& last = timeline.stages[1].actions;
  EXPECT_EQ(first[1].begin, Nanos(10)) << "the second forward pass waits for no transfer";
  EXPECT_EQ(last[0].begin, Nanos(15));
  EXPECT_EQ(first[2].begin, Nanos(15 + 10 + 20 + 7)) << "the first backward pass";
  EXPECT_EQ(timeline.end, Nanos(15 + 2 * 30 + 7 + 20));
}

/// Rarely of round numbers, so that patterns are long or come late; or of few, so that many tie.
AlikePasses any_passes(int64_t most) {
  const auto length = [&] { return Nanos(*rc::gen::inRange<int64_t>(0, most)); };
  return {.first_forward = length(),
          .forward = length(),
          .last_forward = length(),
          .backward = length(),
          .last_backward = length(),
          .ready = length(),
          .forward_travels = length(),
          .backward_travels = length()};
}

/// Every micro-batch by itself, in the order in which the stage takes them.
StageTimes one_by_one(const AlikePasses& passes, int stages, int stage, int micro_batches) {
  StageTimes times;
  const int begun = most_in_flight(stages, stage, micro_batches);
  for (int i = 0; i < micro_batches; ++i) {
    const bool last = i + 1 == micro_batches;
    times.forward.push_back(last        ? passes.last_forward
                            : i < begun ? passes.first_forward
                                        : passes.forward);
    times.backward.push_back(last ? passes.last_backward : passes.backward);
  }
  times.ready = passes.ready;
  times.forward_travels = passes.forward_travels;
  times.backward_travels = passes.backward_travels;
  return times;
}

RC_GTEST_PROP(PipelineEnd, IsThatOfTheSimulation, ()) {
  const int stages = *rc::gen::inRange(1, 25);
  const int micro_batches = *rc::gen::oneOf(rc::gen::inRange(1, 20), rc::gen::inRange(20, 400));
  const int64_t most = *rc::gen::element<int64_t>(2, 5, 1000, 100'000'000);
  std::vector<AlikePasses> passes;
  std::vector<StageTimes> times;
  for (int stage = 0; stage < stages; ++stage) {
    passes.push_back(any_passes(most));
    times.push_back(one_by_one(passes.back(), stages, stage, micro_batches));
  }
  RC_ASSERT(pipeline_end(passes, micro_batches) == simulate_pipeline(times).end);
}

/// A hundred million micro-batches end at once: none is worked that is like those before.
TEST(PipelineEnd, SkipsWhatRepeats) {
  const AlikePasses quick{.first_forward = Nanos(10),
                          .forward = Nanos(10),
                          .last_forward = Nanos(10),
                          .backward = Nanos(20),
                          .last_backward = Nanos(20)};
  AlikePasses slow = quick;
  slow.backward = slow.last_backward = Nanos(21);
  constexpr int kMany = 100'000'000;
  EXPECT_EQ(pipeline_end({quick, slow}, kMany), Nanos(10 + int64_t{31} * kMany + 20));
}

}  // namespace
}  // namespace motley
