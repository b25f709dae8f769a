// How far an attempt is, and the file that says so.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "scheduler/run/progress_file.h"
#include "scheduler/run/progress_tracker.h"
#include "tests/support/temporary_directory.h"

namespace motley {
namespace {

Attempt attempt_on_two() {
  Attempt attempt;
  attempt.epoch = Epoch(3);
  attempt.job.train.steps = 100;
  attempt.job.train.global_batch = 8;
  attempt.plan.ranks = {{.device = "a1/0", .host = "a1", .type = "fast"},
                        {.device = "a2/0", .host = "a2", .type = "slow"}};
  attempt.plan.prediction.ranks = {{.rank = Rank(0), .memory = Bytes(5), .memory_limit = Bytes(9)}};
  return attempt;
}

StepReport report_of(int rank, int64_t step, double compute, double wait) {
  StepReport report;
  report.rank = rank;
  report.step = step;
  report.step_seconds = compute + wait;
  report.compute_seconds = compute;
  report.wait_seconds = wait;
  report.loss = 2.5;
  return report;
}

TEST(ProgressTracker, BeginsWithWhatThePlanSays) {
  const ProgressTracker tracker(attempt_on_two(), 1000.5);
  const RunProgress progress = tracker.with_ranks();
  EXPECT_EQ(progress.epoch, Epoch(3));
  EXPECT_EQ(progress.phase, "launching");
  EXPECT_EQ(progress.begun, 1000.5);
  EXPECT_EQ(progress.step, std::nullopt);
  EXPECT_EQ(progress.steps, 100);
  ASSERT_EQ(progress.ranks.size(), 2u);
  EXPECT_EQ(progress.ranks[0].memory, Bytes(5));
  EXPECT_EQ(progress.ranks[0].memory_limit, Bytes(9));
  EXPECT_EQ(progress.ranks[1].memory, std::nullopt);
  EXPECT_EQ(progress.ranks[1].host, "a2");
  EXPECT_EQ(progress.ranks[1].compute_seconds, std::nullopt);
}

TEST(ProgressTracker, TellsPaceAndWhoWaits) {
  ProgressTracker tracker(attempt_on_two(), 0);
  tracker.add(PhaseReport{0, "training", "", 40});
  for (int step = 41; step <= 50; ++step) {
    tracker.add(report_of(1, step, 0.4, 0.0), nanos_of_seconds(step));
    tracker.add(report_of(0, step, 0.3, 0.1), nanos_of_seconds(step));
  }
  const RunProgress progress = tracker.with_ranks();
  EXPECT_EQ(progress.phase, "training");
  EXPECT_EQ(progress.step, 50);
  EXPECT_EQ(progress.loss, 2.5);
  EXPECT_DOUBLE_EQ(*progress.step_seconds, 0.4);
  EXPECT_DOUBLE_EQ(*progress.samples_per_second, 20);
  EXPECT_NEAR(*progress.eta_seconds, 50, 1e-6) << "by this machine's clock, not the ranks'";
  EXPECT_NEAR(*progress.ranks[0].wait_seconds, 0.1, 1e-12);
  ASSERT_TRUE(progress.straggler());
  EXPECT_EQ(progress.straggler()->rank, 1u);
}

TEST(ProgressTracker, ForgetsOldStepsAndLeavesOutSpecialOnes) {
  ProgressTracker tracker(attempt_on_two(), 0);
  for (int step = 1; step <= 30; ++step)
    tracker.add(report_of(0, step, step <= 10 ? 5.0 : 1.0, 0.0), nanos_of_seconds(step));
  StepReport special = report_of(0, 31, 9.0, 0.0);
  special.special = true;
  tracker.add(special, nanos_of_seconds(31));
  EXPECT_EQ(tracker.so_far().step, 31);
  EXPECT_DOUBLE_EQ(*tracker.with_ranks().ranks[0].compute_seconds, 1.0);
}

TEST(ProgressTracker, HasNoLossThatIsNotFiniteAndNoRankOutsideThePlan) {
  ProgressTracker tracker(attempt_on_two(), 0);
  tracker.add(report_of(7, 1, 1, 1), Nanos(0));
  StepReport diverged = report_of(0, 1, 1, 0);
  diverged.loss = std::numeric_limits<double>::infinity();
  tracker.add(diverged, Nanos(0));
  EXPECT_EQ(tracker.so_far().loss, std::nullopt);
  EXPECT_EQ(tracker.so_far().eta_seconds, std::nullopt);
}

class ProgressFileTest : public ::testing::Test {
 protected:
  std::string path() const { return scratch_.path() + "/progress.json"; }
  RunProgress read() const {
    auto progress = read_progress(real_file_system(), path());
    EXPECT_TRUE(progress) << progress.error().message;
    return std::move(*progress);
  }
  static RunProgress at(int64_t step) {
    RunProgress progress{.epoch = Epoch(1), .phase = "training", .begun = 1};
    progress.step = step;
    return progress;
  }

  testing::TemporaryDirectory scratch_;
  ManualClock clock_;
};

TEST_F(ProgressFileTest, IsReplacedOnceASecondAtMostAndGoesWithTheAttempt) {
  int asked = 0;
  const auto offer = [&](ProgressFile& file, int64_t step) {
    file.offer([&] {
      ++asked;
      return at(step);
    });
  };
  {
    ProgressFile file(real_file_system(), clock_, path());
    for (int64_t step = 1; step <= 40; ++step) {
      offer(file, step);
      clock_.advance(nanos_of_seconds(0.1));
    }
    EXPECT_EQ(asked, 4);
    EXPECT_EQ(read().step, 31);
    file.write(at(77));
    EXPECT_EQ(read().step, 77);
  }
  EXPECT_EQ(read_progress(real_file_system(), path()).error().code, ErrorCode::kNotFound);
}

TEST_F(ProgressFileTest, WhatIsNoProgressIsCorrupt) {
  std::ofstream(path()) << "{\"version\": 1, \"step\": ";
  EXPECT_EQ(read_progress(real_file_system(), path()).error().code, ErrorCode::kCorrupt);
}

TEST_F(ProgressFileTest, ADiskThatTakesNothingIsNoMatter) {
  ProgressFile file(real_file_system(), clock_, scratch_.path() + "/missing/progress.json");
  file.write(at(1));
}

}  // namespace
}  // namespace motley
