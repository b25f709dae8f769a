#include "scheduler/report/timeline.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/model.h"
#include "tests/support/golden.h"

namespace motley {
namespace {

using testing::expect_golden;

Nanos ms(int milliseconds) { return Nanos(int64_t{milliseconds} * 1'000'000); }

StagePlan drawn_stage(LayerIndex first, LayerIndex last, int rank) {
  StagePlan stage;
  stage.first_layer = first;
  stage.last_layer = last;
  stage.ranks = {Rank(rank)};
  stage.shares = {1.0};
  return stage;
}

/// A device alone and two in a pipeline.
struct MadeUpStep {
  MadeUpStep() {
    plan.global_batch = 3;
    plan.grain = 1;
    plan.replicas = {{{drawn_stage(0, 3, 0)}, 1, 2},
                     {{drawn_stage(0, 1, 1), drawn_stage(2, 3, 2)}, 1, 1}};
    for (int rank = 0; rank < 3; ++rank) {
      plan.ranks.push_back(
          {"a1/" + std::to_string(rank), "a1", rank == 0 ? "A100-40GB" : "<old> & slow"});
      plan.prediction.ranks.push_back({.rank = Rank(rank),
                                       .memory = Bytes(int64_t{6} << 30),
                                       .memory_limit = Bytes(int64_t{8} << 30)});
      DeviceProfile& device = profile.devices.emplace_back();
      device.device = plan.ranks.back().device;
      device.evidence = rank == 2 ? Evidence::kPaced : Evidence::kSimulated;
      timeline.ranks.push_back({.rank = Rank(rank), .spans = {}});
    }
    plan.prediction.step_seconds = 0.1;
    plan.prediction.samples_per_second = 30;
    timeline.step = ms(100);
    using enum SpanKind;
    timeline.ranks[0].spans = {
        {kUpdate, false, -1, ms(0), ms(4)},    {kForward, false, 0, ms(4), ms(18)},
        {kBackward, false, 0, ms(18), ms(46)}, {kForward, false, 1, ms(46), ms(60)},
        {kBackward, false, 1, ms(60), ms(88)}, {kReduce, true, -1, ms(88), ms(90)},
        {kReduce, false, -1, ms(90), ms(100)}};
    timeline.ranks[1].spans = {
        {kUpdate, false, -1, ms(0), ms(2)},    {kForward, false, 0, ms(2), ms(22)},
        {kReceive, true, 0, ms(22), ms(50)},   {kReceive, false, 0, ms(50), ms(55)},
        {kBackward, false, 0, ms(55), ms(90)}, {kReduce, false, -1, ms(90), ms(100)}};
    timeline.ranks[2].spans = {
        {kUpdate, false, -1, ms(0), ms(2)},   {kReceive, true, 0, ms(2), ms(27)},
        {kForward, false, 0, ms(27), ms(35)}, {kBackward, false, 0, ms(35), ms(50)},
        {kReduce, true, -1, ms(50), ms(90)},  {kReduce, false, -1, ms(90), ms(100)}};
  }
  DrawnStep drawn() const { return {"gpt <1>", plan, profile, timeline}; }

  Plan plan;
  Profile profile;
  StepTimeline timeline;
};

TEST(Timeline, IsATable) {
  expect_golden("report/timeline.txt", timeline_table(MadeUpStep().drawn()));
}

TEST(Timeline, IsAPicture) {
  expect_golden("report/timeline.svg", timeline_svg(MadeUpStep().drawn()));
}

TEST(Timeline, IsATraceAsARunsOwn) {
  const MadeUpStep made;
  const auto events = nlohmann::json::parse(timeline_trace(made.drawn()));
  // Three names and a step for each rank, then its spans.
  ASSERT_EQ(events.size(), 3U * 4 + 7 + 6 + 6);
  EXPECT_EQ(events[0]["args"]["name"], "rank 0 on a1/0 (A100-40GB), simulated");
  EXPECT_EQ(events[3], nlohmann::json::parse(R"({"name": "step 1", "cat": "step", "ph": "X",
    "ts": 0.0, "dur": 1e5, "pid": 0, "tid": 0, "args": {"step": 1}})"));
  EXPECT_EQ(events[5], nlohmann::json::parse(R"({"name": "forward 0", "cat": "compute", "ph": "X",
    "ts": 4e3, "dur": 14e3, "pid": 0, "tid": 0, "args": {"step": 1, "micro_batch": 0, "stage": 0}})"));
  EXPECT_EQ(events[9]["name"], "wait for reduce");
  EXPECT_EQ(events[9]["cat"], "wait");
  EXPECT_EQ(events[10]["cat"], "communication");
  EXPECT_EQ(events[24 + 1]["name"], "update");
}

TEST(Timeline, IsJson) {
  const MadeUpStep made;
  const nlohmann::json json = timeline_json(made.drawn());
  EXPECT_EQ(json["evidence"], "simulated");  // the weakest
  EXPECT_EQ(json["ranks"][2]["evidence"], "paced");
  for (const auto& rank : json["ranks"])
    EXPECT_NEAR(rank["busy_seconds"].get<double>() + rank["wait_seconds"].get<double>() +
                    rank["communicate_seconds"].get<double>(),
                json["step_seconds"].get<double>(), 1e-12);
  EXPECT_DOUBLE_EQ(json["ranks"][1]["wait_seconds"].get<double>(), 0.028);
  EXPECT_DOUBLE_EQ(json["ranks"][1]["communicate_seconds"].get<double>(), 0.015);
  EXPECT_EQ(json["ranks"][2]["stage"], 1);
}

TEST(Timeline, APictureStaysSmall) {
  MadeUpStep made;
  made.timeline.ranks[0].spans.clear();
  for (int i = 0; i < 100'000; ++i)
    made.timeline.ranks[0].spans.push_back(
        {SpanKind::kForward, false, i, Nanos(int64_t{i} * 1000), Nanos(int64_t{i + 1} * 1000)});
  EXPECT_LT(timeline_svg(made.drawn()).size(), 500'000U);
}

}  // namespace
}  // namespace motley
