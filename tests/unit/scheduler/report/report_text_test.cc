#include "scheduler/report/report_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "scheduler/report/plan_table.h"
#include "scheduler/report/table.h"
#include "tests/support/golden.h"
#include "tests/unit/scheduler/report/made_up_run.h"

namespace motley {
namespace {

using ::testing::AllOf;
using testing::expect_golden;
using ::testing::HasSubstr;
using testing::made_up_plan;
using testing::made_up_summary;
using ::testing::Not;

TEST(ReportText, OfAFinishedRun) {
  expect_golden("report/report.txt", report_text(made_up_summary(), made_up_plan()));
}

TEST(ReportText, OfALossThatIsNoNumber) {
  RunSummary summary = made_up_summary();
  summary.state = "failed";
  summary.final_loss = NAN;
  summary.eval_loss = INFINITY;
  summary.weights_xxh3 = "";
  expect_golden("report/report_nan.txt", report_text(summary, made_up_plan()));
}

TEST(ReportText, OfASingleStepWithoutATime) {
  RunSummary summary = made_up_summary();
  summary.steps = 1;
  summary.final_loss = summary.first_loss;
  summary.eval_loss.reset();
  summary.actual_step_seconds = summary.samples_per_second = summary.efficiency = {};
  summary.equal_split.reset();
  for (RankActual& rank : summary.ranks)
    rank.compute_seconds = rank.wait_seconds = rank.update_seconds = {};
  expect_golden("report/report_single.txt", report_text(summary, made_up_plan()));
}

TEST(ReportText, SaysWhyAnEqualSplitWasNotMeasured) {
  RunSummary summary = made_up_summary();
  summary.equal_split = EqualSplit{"", 0, "rank 3 was killed"};
  const std::string text = report_text(summary, made_up_plan());
  EXPECT_THAT(text, HasSubstr("equal split    not measured: rank 3 was killed\n"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("times as fast")));
}

TEST(ReportText, NamesTheRankThatTheOthersWaitFor) {
  RunSummary summary = made_up_summary();
  EXPECT_THAT(report_text(summary, made_up_plan()), Not(HasSubstr("straggler")));
  summary.ranks[0].compute_seconds = 0.07;
  summary.ranks[0].wait_seconds = 0.029;
  EXPECT_THAT(
      report_text(summary, made_up_plan()),
      HasSubstr("rank 1 (RTX3090 on r1) holds the others up: they wait 29 % of the time\n"));
}

TEST(ReportText, OfAResumedRunThatWasStoppedAgain) {
  RunSummary summary = made_up_summary();
  summary.state = "stopped";
  summary.restarts = 2;
  summary.kind = Evidence::kMeasured;
  summary.set_aside = {testing::made_up_damage()};
  expect_golden("report/report_resumed.txt", report_text(summary, made_up_plan()));
}

TEST(ReportText, ARehearsalThatOverranClaimsNoEfficiency) {
  RunSummary summary = made_up_summary();
  summary.state = "failed";
  summary.paced = {2000, 21};
  summary.efficiency = {};
  const std::string text = report_text(summary, made_up_plan());
  EXPECT_THAT(text, HasSubstr("efficiency     - of the sum of solo speeds"));
  EXPECT_THAT(text, HasSubstr("rehearsal not trustworthy: in 21 of 2000 sections (1.1 %)"));
}

/// Who reads both sees one meaning of "wait".
TEST(ReportText, PredictsTheWaitThatThePlanShows) {
  const Plan plan = made_up_plan();
  const std::string wait =
      format_duration(waiting_seconds(plan.prediction, plan.prediction.ranks[0]));
  EXPECT_THAT(report_text(made_up_summary(), plan), HasSubstr(wait));
  EXPECT_THAT(plan_table(plan, Evidence::kMeasured), HasSubstr(wait));
}

TEST(ReportText, SaysWhatRanOutOfMemory) {
  RunSummary summary = made_up_summary();
  summary.out_of_memory = {{"r1/0", "RTX3090", 8, 4}, {"r1/0", "RTX3090", 4, 0}};
  EXPECT_THAT(report_text(summary, made_up_plan()),
              HasSubstr("r1/0 (RTX3090) ran out of memory at micro-batch 4: going on without it"));
}

TEST(ReportText, OfARunThatNeverTookAStep) {
  RunSummary summary;
  summary.run_dir = "/runs/gpt/1";
  summary.state = "failed";
  EXPECT_EQ(report_text(summary, Plan()),
            "Report (measured): failed\nrun directory: /runs/gpt/1\n");
}

TEST(PlanTable, OfTwoUnlikeCards) {
  const std::vector<SoloSpeed> speeds = {{"a1/0", "A100-40GB", 16, 450},
                                         {"r1/0", "RTX3090", 8, 200},
                                         {"r1/1", "GTX1070", 0, 0, false, false}};
  expect_golden("report/plan.txt", solo_table(speeds, Evidence::kMeasured) + "\n" +
                                       plan_table(made_up_plan(), Evidence::kMeasured));
}

/// Up to micro-batch 2 it holds the model, up to 8 each layer by itself; twice as slow as those.
DeviceProfile measured_device(const std::string& name) {
  DeviceProfile device;
  device.device = name;
  device.type = "card";
  device.memory_limit = Bytes(100);
  for (const char* layer : {"model", "embedding", "block", "head"}) {
    LayerCurve& curve = device.curves.emplace_back();
    curve.layer = layer;
    for (const int size : {1, 2, 4, 8}) curve.points.push_back({size, 0.01 * size, 0, 1});
    curve.fit = fit_curve(curve.points);
  }
  device.memory = {{1, Bytes(10), Bytes(10)}, {2, Bytes(10), Bytes(20)}};
  return device;
}

/// The same meaning as in predictions (planner/costs/predict.cc).
TEST(PlanTable, CountsADeviceOfWhichNoMicroBatchIsAllowedLayerByLayer) {
  Plan plan = made_up_plan();
  plan.numerics = Numerics::kExact;  // grains of 4
  Profile profile;
  profile.devices = {measured_device("a1/0"), measured_device("r1/0")};
  const ModelSpec model{"gpt", 1, 2, 8, 16, 32};
  std::vector<SoloSpeed> speeds = solo_speeds(profile, plan, model);
  EXPECT_TRUE(speeds[0].layers_only);
  EXPECT_EQ(speeds[0].micro_batch, 4);
  EXPECT_NEAR(speeds[0].samples_per_second, 100, 1e-6);  // as long as where it holds the model
  EXPECT_THAT(solo_table(speeds, Evidence::kMeasured), HasSubstr(" 200.0\n"));
  for (LayerCurve& curve : profile.devices[1].curves) curve.points.resize(2);
  speeds = solo_speeds(profile, plan, model);
  EXPECT_EQ(speeds[1].micro_batch, 0);
  EXPECT_THAT(solo_table(speeds, Evidence::kMeasured), HasSubstr(" -\n"));
}

/// Its samples/s are what the plan's efficiency refers to.
TEST(PlanTable, SumsTheSoloSpeedsOfTheDevicesUsed) {
  std::vector<SoloSpeed> speeds = {
      {"a1/0", "A100-40GB", 16, 450}, {"r1/0", "RTX3090", 8, 200}, {"r1/1", "GTX1070", 4, 50}};
  EXPECT_THAT(solo_table(speeds, Evidence::kMeasured),
              AllOf(HasSubstr("\nsum  "), HasSubstr(" 700.0\n")));
  speeds[2].used = false;
  const std::string text = solo_table(speeds, Evidence::kMeasured);
  EXPECT_THAT(text, HasSubstr("GTX1070 (left out)"));
  EXPECT_THAT(text, HasSubstr("\nsum of the 2 used"));
  EXPECT_THAT(text, HasSubstr(" 650.0\n"));
  speeds[1].micro_batch = 0;
  EXPECT_THAT(solo_table(speeds, Evidence::kMeasured), HasSubstr(" -\n"));
}

TEST(ReportText, FitsATerminal) {
  Plan plan = made_up_plan();
  for (RankPlacement& rank : plan.ranks) rank.device = "localhost/0", rank.type = "middling-card";
  RunSummary summary = made_up_summary();
  for (RankActual& rank : summary.ranks) rank.compute_seconds = rank.wait_seconds = 0.00105;
  std::istringstream lines(report_text(summary, plan));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(display_width(line), 80u) << line;
}

/// The second card's half of the layers goes to a pair that shares them.
TEST(PlanTable, OfACutPlanHasARowForEachRank) {
  Plan plan = made_up_plan();
  plan.ranks.push_back({"r1/1", "r1", "RTX3090"});
  plan.ranks.push_back({"r1/2", "r1", "GTX1070"});
  ReplicaPlan& cut = plan.replicas[1];
  cut.stages = {{0, 2, {Rank(1)}, {1.0}}, {3, 5, {Rank(2), Rank(3)}, {0.75, 0.25}}};
  plan.prediction.bubble_seconds = 0.01;
  for (const int rank : {2, 3}) {
    plan.prediction.ranks.push_back(plan.prediction.ranks[1]);
    plan.prediction.ranks.back().rank = Rank(rank);
  }
  plan.left_out.clear();
  expect_golden("report/cut_plan.txt", plan_table(plan, Evidence::kPaced));
}

TEST(PlanTable, SaysHowGradientsAreCompressedBetweenHosts) {
  Plan plan = made_up_plan();
  plan.compression = {.codec = {.kind = CodecKind::kInt8}, .below_bytes_per_second = 125e6};
  for (RankPlacement& rank : plan.ranks) rank.host = "here";
  EXPECT_THAT(plan_table(plan, Evidence::kPaced), Not(HasSubstr("gradients between hosts")));
  plan.ranks.back().host = "elsewhere";
  EXPECT_THAT(plan_table(plan, Evidence::kPaced),
              HasSubstr("gradients between hosts: int8, where links are below 125 MB/s\n"));
}

TEST(PlanTable, SaysWhichHostsAverageAndHowOften) {
  Plan plan = made_up_plan();
  for (RankPlacement& rank : plan.ranks) rank.host = "here";
  plan.ranks.back().host = "elsewhere";
  EXPECT_THAT(plan_table(plan, Evidence::kPaced), Not(HasSubstr("average every")));
  plan.sync.across = 8;
  EXPECT_THAT(plan_table(plan, Evidence::kPaced),
              HasSubstr("average every 8 steps: host here | host elsewhere\n"));
}

TEST(TextTable, AlignsByWhatATerminalShows) {
  TextTable table({{"name", Align::kLeft}, {"\u00b5s", Align::kRight}});
  table.add_row({"\u00e9t\u00e9", "1"});
  table.add_row({"winter", "12345"});
  EXPECT_EQ(table.to_string(),
            "name       \u00b5s\n"
            "\u00e9t\u00e9         1\n"
            "winter  12345\n");
}

TEST(TextTable, ATextIsCutBetweenCharacters) {
  EXPECT_EQ(cut_to_width("winter", 6), "winter");
  EXPECT_EQ(cut_to_width("winter", 5), "winte");
  EXPECT_EQ(cut_to_width("\u00e9t\u00e9", 2), "\u00e9t");
  EXPECT_EQ(cut_to_width("\u00e9t\u00e9", 3), "\u00e9t\u00e9");
  EXPECT_EQ(cut_to_width("", 3), "");
}

TEST(TextTable, LinesEndWithoutBlanks) {
  TextTable table({{"a", Align::kLeft}, {"b", Align::kLeft}});
  table.add_row({"x", ""});
  EXPECT_EQ(table.to_string(), "a  b\nx\n");
}

}  // namespace
}  // namespace motley
