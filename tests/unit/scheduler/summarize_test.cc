#include "scheduler/run/summarize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/file_system.h"
#include "core/spec/json.h"
#include "scheduler/run/metrics_log.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/scheduler/report/made_up_run.h"

namespace motley {
namespace {

class Summarize : public ::testing::Test {
 protected:
  void SetUp() override {
    ::setenv("XDG_STATE_HOME", directory_.path().c_str(), 1);
    job_.name = "tiny";
    job_.model = {"gpt", 1, 1, 8, 8, 256};
    job_.train.global_batch = 6;
    job_.train.steps = 20;
    auto run = RunDirectory::create(job_);
    ASSERT_TRUE(run) << run.error().to_string();
    run_.emplace(std::move(*run));
  }

  /// An attempt by the plan `plan_id` that does the steps [first, last], each of `seconds` but for
  /// its first one, which takes a hundred times as long.
  void attempt(int epoch, const std::string& plan_id, int first, int last, double seconds,
               const SectionCount& paced = {}) {
    const std::string directory = run_->attempt_directory(Epoch(epoch));
    std::filesystem::create_directories(directory);
    ASSERT_TRUE(write_text_durably(real_file_system(), directory + "/plan.json",
                                   nlohmann::json{{"id", plan_id}}.dump()));
    MetricsLog log(run_->file("metrics.jsonl"), Epoch(epoch));
    for (int step = first; step <= last; ++step) {
      StepReport report;
      report.step = step;
      report.loss = 10.0 / step;
      report.step_seconds = step == first ? seconds * 100 : seconds;
      ASSERT_TRUE(log.add(report, 0, paced));
    }
  }

  RunSummary summary(const std::string& plan_id) const {
    TrainingResult training;
    training.plan.id = plan_id;
    training.plan.prediction.solo_sum_samples_per_second = 4;
    return summarize(*run_, job_, training, std::nullopt);
  }

  /// The training of `paced` to its last step, step 12.
  RunSummary finished(const SectionCount& paced) {
    job_.train.steps = 12;
    attempt(1, "p", 1, 12, 2, paced);
    TrainingResult training;
    training.plan.id = "p";
    training.plan.prediction.solo_sum_samples_per_second = 4;
    training.last.emplace(training.plan).followed.end.outcome = Outcome::kFinished;
    return summarize(*run_, job_, training, std::nullopt);
  }

  testing::TemporaryDirectory directory_;
  JobSpec job_;
  std::optional<RunDirectory> run_;
};

TEST_F(Summarize, ARunWithoutAStep) {
  const RunSummary result = summary("p");
  EXPECT_EQ(result.state, "failed");
  EXPECT_EQ(result.steps, 0);
  EXPECT_TRUE(std::isnan(result.final_loss));
  EXPECT_FALSE(result.actual_step_seconds);
  EXPECT_FALSE(result.efficiency);
  EXPECT_FALSE(result.predicted_step_seconds);
}

TEST_F(Summarize, ASingleStepHasLossesButNoStepTime) {
  attempt(1, "p", 1, 1, 2);
  const RunSummary result = summary("p");
  EXPECT_EQ(result.steps, 1);
  EXPECT_EQ(result.first_loss, 10);
  EXPECT_EQ(result.final_loss, 10);
  EXPECT_FALSE(result.actual_step_seconds) << "the first steps only warm up";
}

TEST_F(Summarize, SpeedIsThatOfOrdinaryStepsAfterTheWarmUp) {
  attempt(1, "p", 1, 12, 2);
  const RunSummary result = summary("p");
  EXPECT_EQ(result.steps, 12);
  EXPECT_EQ(result.actual_step_seconds, 2);
  EXPECT_EQ(result.samples_per_second, 3);
  EXPECT_EQ(result.efficiency, 0.75);
}

TEST_F(Summarize, ARunByHandIsWhatItsDevicesSay) {
  attempt(1, "p", 1, 12, 2);
  EXPECT_EQ(summary("p").kind, Evidence::kMeasured);
  FleetSpec fleet;
  fleet.devices.resize(2);
  const auto write = [&] {
    EXPECT_TRUE(write_text_durably(real_file_system(),
                                   run_->attempt_directory(Epoch(1)) + "/attempt.json",
                                   nlohmann::json{{"fleet", to_json(fleet)}}.dump()));
  };
  write();
  EXPECT_EQ(summary("p").kind, Evidence::kMeasured);
  fleet.devices[1].share = ShareSpec{32, 0};
  write();
  EXPECT_EQ(summary("p").kind, Evidence::kThrottled);
  fleet.devices[0].paced = PaceSpec{};
  write();
  EXPECT_EQ(summary("p").kind, Evidence::kPaced);
}

TEST_F(Summarize, AResumedRunCountsEachStepOnceAndTimesOfItsLastPlan) {
  attempt(1, "before", 1, 30, 1);
  attempt(2, "after", 21, 40, 2);
  attempt(3, "after", 41, 50, 4);
  const RunSummary result = summary("after");
  EXPECT_EQ(result.steps, 50);
  EXPECT_EQ(result.first_loss, 10);
  EXPECT_EQ(result.final_loss, 0.2);
  EXPECT_EQ(result.actual_step_seconds, 2) << "15 steps of 2 s and 5 of 4 s";
}

TEST_F(Summarize, ALossThatIsNoNumberStaysNone) {
  attempt(1, "p", 1, 3, 2);
  MetricsLog log(run_->file("metrics.jsonl"), Epoch(1));
  StepReport report;
  report.step = 4;
  report.loss = NAN;
  ASSERT_TRUE(log.add(report, 0, {}));
  const RunSummary result = summary("p");
  EXPECT_EQ(result.steps, 4);
  EXPECT_TRUE(std::isnan(result.final_loss));
}

TEST_F(Summarize, ARehearsalThatOverranHasFailedAndHasNoEfficiency) {
  const RunSummary result = finished({1000, 11});
  EXPECT_EQ(result.state, "failed");
  EXPECT_EQ(result.actual_step_seconds, 2);
  EXPECT_FALSE(result.efficiency);
  EXPECT_TRUE(is_over(result, job_)) << "another attempt would not mend it";
}

TEST_F(Summarize, ARehearsalThatHardlyOverranIsFinished) {
  const RunSummary result = finished({1000, 10});
  EXPECT_EQ(result.state, "finished");
  EXPECT_EQ(result.efficiency, 0.75);
}

TEST_F(Summarize, OverrunsOfAllAttemptsCount) {
  attempt(1, "p", 1, 10, 2, {400, 1});
  attempt(2, "p", 6, 12, 2, {100, 9});
  EXPECT_EQ(summary("p").paced.sections, 500);
  EXPECT_EQ(summary("p").paced.overruns, 10);
}

TEST_F(Summarize, ARunThatWasKilledIsReportedFromItsMetrics) {
  attempt(1, "p", 1, 12, 2);
  const auto result = summary_of(*run_);
  ASSERT_TRUE(result) << result.error().to_string();
  EXPECT_EQ(result->state, "interrupted");
  EXPECT_EQ(result->steps, 12);
  EXPECT_EQ(result->first_loss, 10);
  EXPECT_FALSE(result->restarts);
}

TEST_F(Summarize, AReportOfFewerStepsThanWereTrainedSinceIsStale) {
  attempt(1, "p", 1, 12, 2);
  ASSERT_TRUE(run_->write("report.json", to_json(summary("p")).dump()));
  EXPECT_EQ(summary_of(*run_)->state, "failed");
  attempt(2, "p", 11, 15, 2);
  EXPECT_EQ(summary_of(*run_)->state, "interrupted");
  EXPECT_EQ(summary_of(*run_)->steps, 15);
}

TEST_F(Summarize, ARunThatIsLockedIsRunning) {
  attempt(1, "p", 1, 3, 2);
  ASSERT_TRUE(run_->lock());
  EXPECT_EQ(summary_of(*RunDirectory::find("tiny"))->state, "running");
}

/// As the worker leaves it: without a report.
TEST_F(Summarize, ARunByHandIsOverWhenItsLastStepIsSaved) {
  Plan plan = testing::made_up_plan();
  plan.owners = even_ownership(plan, {"gpt", 4, 2, 8, 8, 256});
  plan.id = plan_id(plan);
  attempt(1, plan.id, 1, 20, 2);
  ASSERT_TRUE(write_text_durably(
      real_file_system(), run_->attempt_directory(Epoch(1)) + "/plan.json", to_json(plan).dump()));
  ASSERT_TRUE(run_->lock());
  EXPECT_FALSE(summary_if_over(*run_, job_)) << "the last checkpoint is missing";
  const std::string saved = run_->checkpoints(job_) + "/" + checkpoint_directory_name(20, Epoch(1));
  std::filesystem::create_directories(saved);
  ASSERT_TRUE(write_text_durably(real_file_system(), saved + "/manifest.json", "{}"));
  const auto over = summary_if_over(*run_, job_);
  ASSERT_TRUE(over);
  EXPECT_EQ(over->state, "finished");
  EXPECT_EQ(over->steps, 20);
  EXPECT_EQ(over->actual_step_seconds, 2);
  EXPECT_FALSE(std::filesystem::exists(run_->file("report.json")));
  job_.train.steps = 30;
  EXPECT_FALSE(summary_if_over(*run_, job_)) << "there are steps left";
}

TEST_F(Summarize, ARunWithoutAStepHasNoReport) {
  const auto result = summary_of(*run_);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace motley
