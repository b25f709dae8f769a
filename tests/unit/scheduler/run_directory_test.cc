#include "scheduler/run/run_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/attempt.h"
#include "core/file_system.h"
#include "scheduler/run/process_directory.h"
#include "scheduler/run/training.h"
#include "tests/support/temporary_directory.h"

namespace motley {
namespace {

using ::testing::HasSubstr;

class RunDirectoryTest : public ::testing::Test {
 protected:
  void SetUp() override { ::setenv("XDG_STATE_HOME", directory_.path().c_str(), 1); }

  static JobSpec job(int64_t steps = 10) {
    JobSpec spec;
    spec.name = "tiny";
    spec.model = {"gpt", 1, 1, 8, 8, 256};
    spec.train.global_batch = 4;
    spec.train.steps = steps;
    return spec;
  }

  static RunDirectory open(const JobSpec& spec, bool fresh = false) {
    if (!fresh) {
      auto newest = RunDirectory::newest(spec);
      EXPECT_TRUE(newest) << newest.error().to_string();
      if (*newest) return std::move(**newest);
    }
    auto run = RunDirectory::create(spec);
    EXPECT_TRUE(run) << run.error().to_string();
    return std::move(*run);
  }

  static void commit_checkpoint(const RunDirectory& run, int64_t step, int epoch) {
    const std::string path =
        run.checkpoints(job()) + "/" + checkpoint_directory_name(step, Epoch(epoch));
    std::filesystem::create_directories(path);
    std::ofstream(path + "/manifest.json") << "{}";
  }

  testing::TemporaryDirectory directory_;
};

TEST_F(RunDirectoryTest, ContinuesTheNewestRun) {
  EXPECT_EQ(open(job()).title(), "tiny/1");
  EXPECT_EQ(open(job()).title(), "tiny/1");
  EXPECT_EQ(open(job(), true).title(), "tiny/2");
  EXPECT_EQ(open(job()).title(), "tiny/2");
}

TEST_F(RunDirectoryTest, NumbersAreComparedAsNumbers) {
  open(job());
  std::filesystem::rename(directory_.path() + "/motley/runs/tiny/1",
                          directory_.path() + "/motley/runs/tiny/10");
  std::filesystem::create_directory(directory_.path() + "/motley/runs/tiny/9");
  EXPECT_EQ(open(job(), true).title(), "tiny/11");
}

TEST_F(RunDirectoryTest, MoreStepsContinueButAnotherModelDoesNot) {
  open(job(10));
  const RunDirectory run = open(job(20));
  EXPECT_EQ(run.title(), "tiny/1");
  std::ofstream(run.file("metrics.jsonl")) << "{\"step\":1}\n";
  JobSpec other = job();
  other.model.layers = 2;
  const auto refused = RunDirectory::newest(other);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidSpec);
  EXPECT_THAT(refused.error().message, HasSubstr("model.layers"));
  EXPECT_THAT(refused.error().message, HasSubstr("--fresh"));
}

TEST_F(RunDirectoryTest, AChangedKeyIsToldWhereTheJobHasIt) {
  std::ofstream(open(job()).file("metrics.jsonl")) << "{\"step\":1}\n";
  JobSpec other = job();
  other.train.optimizer.lr = 1;
  other.places["train.optimizer.lr"] = {"job.yaml", 7, 20};
  const auto refused = RunDirectory::newest(other);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().to_string(),
              HasSubstr("job.yaml:7:20: train.optimizer.lr has changed since run tiny/1"));
}

TEST_F(RunDirectoryTest, ADocumentOfAnotherShapeIsNamed) {
  const RunDirectory run = open(job());
  ASSERT_TRUE(run.write("job.json", "[]"));
  EXPECT_EQ(run.job().error().to_string(),
            run.file("job.json") + ":1:1: /: expected an object, found an array");
}

TEST_F(RunDirectoryTest, ARunThatCannotBeFilledIsNotMade) {
  const RunDirectory first = open(job());
  const auto made = RunDirectory::create(job(), [](const RunDirectory::Draft& draft) {
    std::ofstream(draft.path + "/half") << "x";
    return fail(ErrorCode::kIo, "disk full");
  });
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().message, "disk full");
  EXPECT_THAT(*real_file_system().list(directory_.path() + "/motley/runs/tiny"),
              ::testing::ElementsAre("1"));
  EXPECT_EQ(RunDirectory::find("tiny")->path(), first.path());
}

TEST_F(RunDirectoryTest, WhatAKilledProcessLeftOfARunIsSwept) {
  const RunDirectory first = open(job());
  const std::string runs = directory_.path() + "/motley/runs/tiny";
  const std::string own = draft_name();
  const std::string of_this_host = own.substr(0, own.rfind('-') + 1);
  constexpr const char* kNobody = "4194305";  // above the largest pid Linux gives
  for (const std::string& name :
       {of_this_host + kNobody, of_this_host + "1", std::string(".new-another-host-") + kNobody})
    std::filesystem::create_directories(runs + "/" + name);
  open(job(), true);
  EXPECT_THAT(*real_file_system().list(runs),
              ::testing::UnorderedElementsAre("1", "2", of_this_host + "1",
                                              std::string(".new-another-host-") + kNobody));
}

TEST_F(RunDirectoryTest, ANumberUnderWhichAnotherHasSavedIsNotTaken) {
  JobSpec chosen = job();
  chosen.checkpoint.dir = directory_.path() + "/elsewhere";
  std::filesystem::create_directories(chosen.checkpoint.dir + "/tiny/4");
  EXPECT_EQ(open(chosen).title(), "tiny/5");
}

TEST_F(RunDirectoryTest, AStateDirectoryThatJsonCannotNameIsRefused) {
  ::setenv("XDG_STATE_HOME", (directory_.path() + "/caf\xe9").c_str(), 1);
  const auto made = RunDirectory::create(job());
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::kNotPermitted);
  EXPECT_THAT(made.error().message, HasSubstr("XDG_STATE_HOME"));
}

TEST_F(RunDirectoryTest, IsFoundByNameNumberAndPath) {
  open(job());
  const RunDirectory second = open(job(), true);
  EXPECT_EQ(RunDirectory::find("tiny")->title(), "tiny/2");
  EXPECT_EQ(RunDirectory::find("tiny/1")->title(), "tiny/1");
  EXPECT_EQ(RunDirectory::find(second.path())->title(), "tiny/2");
  const auto missing = RunDirectory::find("other");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
}

TEST_F(RunDirectoryTest, ASecondHolderIsRefusedAndNamedTheFirst) {
  RunDirectory first = open(job());
  ASSERT_TRUE(first.lock());
  RunDirectory second = open(job());
  const auto refused = second.lock();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kNotPermitted);
  EXPECT_THAT(refused.error().message, HasSubstr("process " + std::to_string(::getpid())));
}

TEST_F(RunDirectoryTest, TheLockGoesWithItsHolder) {
  {
    RunDirectory first = open(job());
    ASSERT_TRUE(first.lock());
  }
  RunDirectory second = open(job());
  EXPECT_TRUE(second.lock());
}

TEST_F(RunDirectoryTest, EpochsRiseAndAreNeverReused) {
  RunDirectory run = open(job());
  EXPECT_EQ(run.next_epoch(job())->value(), 1);
  EXPECT_EQ(run.next_epoch(job())->value(), 2);
  EXPECT_TRUE(std::filesystem::is_directory(run.attempt_directory(Epoch(2))));
  commit_checkpoint(run, 5, 7);  // by an attempt whose directory is gone
  EXPECT_EQ(run.next_epoch(job())->value(), 8);
}

TEST_F(RunDirectoryTest, CommittedCheckpointsAreListedNewestFirst) {
  const RunDirectory run = open(job());
  commit_checkpoint(run, 5, 1);
  commit_checkpoint(run, 20, 1);
  commit_checkpoint(run, 20, 2);
  std::filesystem::create_directory(run.checkpoints(job()) + "/step-00000030.e2");  // no manifest
  const auto found = run.committed(job());
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].epoch, Epoch(2));
  EXPECT_EQ(found[2].step, 5);
}

TEST_F(RunDirectoryTest, TheNewestCheckpointIsOfTheNewestAttempt) {
  const RunDirectory run = open(job());
  commit_checkpoint(run, 20, 1);
  commit_checkpoint(run, 10, 2);  // went back behind what led nowhere
  EXPECT_EQ(run.committed(job()).front().step, 10);
}

TEST_F(RunDirectoryTest, ARunThatNeverTrainedTakesAnotherJob) {
  const RunDirectory run = open(job());
  ASSERT_TRUE(run.write("equal_split.json", "{}"));
  JobSpec other = job();
  other.train.global_batch *= 2;
  const auto found = RunDirectory::newest(other);
  ASSERT_TRUE(found) << found.error().to_string();
  EXPECT_EQ((*found)->path(), run.path());
  ASSERT_TRUE((*found)->begin_again_with(other));
  EXPECT_FALSE(std::filesystem::exists(run.file("equal_split.json")));
  std::ofstream(run.file("metrics.jsonl")) << "{\"step\":1}\n";
  EXPECT_EQ(RunDirectory::newest(other).error().code, ErrorCode::kInvalidSpec);
}

TEST_F(RunDirectoryTest, AnEditedJobIsNotWhatTheRunTrainedWith) {
  RunDirectory run = open(job());
  Attempt attempt;
  attempt.job = job();
  attempt.run_dir = run.path();
  const std::string directory = run.attempt_directory(*run.next_epoch(job()));
  ASSERT_TRUE(
      write_text_durably(real_file_system(), directory + "/attempt.json", to_json(attempt).dump()));
  std::ofstream(run.file("metrics.jsonl")) << "{\"step\":1}\n";
  EXPECT_TRUE(run.check_continues(job()));
  JobSpec edited = job();
  edited.train.seed += 1;
  const auto checked = run.check_continues(edited);
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error().code, ErrorCode::kInvalidSpec);
  EXPECT_EQ(checked.error().message.find("train.seed"), 0u) << checked.error().message;
  EXPECT_EQ(checked.error().place.file, run.file("job.json"));
  EXPECT_GT(checked.error().place.line, 1);
}

TEST_F(RunDirectoryTest, ADirectoryThatIsNoRunIsSaidToBeNone) {
  const auto found = RunDirectory::find(directory_.path());
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(found.error().message, directory_.path() + " is no run: it has no job.json");
}

TEST_F(RunDirectoryTest, RunsDoNotShareAChosenCheckpointDirectory) {
  JobSpec chosen = job();
  chosen.checkpoint.dir = directory_.path() + "/elsewhere";
  EXPECT_EQ(open(chosen).checkpoints(chosen), directory_.path() + "/elsewhere/tiny/1");
}

TEST_F(RunDirectoryTest, ResumesWhereMetricsHaveNoGap) {
  const RunDirectory run = open(job());
  EXPECT_EQ(checkpoint_to_resume(run, job()), "newest");
  commit_checkpoint(run, 5, 1);
  commit_checkpoint(run, 8, 1);
  EXPECT_EQ(checkpoint_to_resume(run, job()), "newest");  // nothing recorded at all
  std::ofstream(run.file("metrics.jsonl")) << "{\"step\":6}\n";
  EXPECT_EQ(checkpoint_to_resume(run, job()), "step-00000005.e1");
  std::ofstream(run.file("metrics.jsonl")) << "{\"step\":8}\n";
  EXPECT_EQ(checkpoint_to_resume(run, job()), "newest");
  EXPECT_EQ(checkpoint_to_resume(run, job(), 7), "step-00000005.e1");  // told to go back
}

}  // namespace
}  // namespace motley
