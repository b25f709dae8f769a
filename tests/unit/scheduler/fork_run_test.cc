#include "scheduler/run/fork_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/file_system.h"
#include "core/hash.h"
#include "scheduler/run/metrics_log.h"
#include "tests/support/temporary_directory.h"

namespace motley {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

/// A run with one checkpoint, of step 5, whose only shard holds five numbers.
class ForkRun : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    ::setenv("XDG_STATE_HOME", directory_.path().c_str(), 1);
    job_.name = "forky";
    job_.model = {"gpt", 1, 1, 8, 8, 256};
    job_.train.global_batch = 4;
    job_.train.steps = 10;
    if (*GetParam() != '\0') job_.checkpoint.dir = directory_.path() + "/" + GetParam();
    auto run = RunDirectory::create(job_);
    ASSERT_TRUE(run) << run.error().to_string();
    run_.emplace(std::move(*run));
    std::ofstream(run_->file("metrics.jsonl")) << "{\"step\":1}\n";
    ASSERT_TRUE(run_->write("fleet.json", "{}"));
    save();
  }

  void save() {
    const std::string header(80, 'h'), data(20, 'd');
    Manifest manifest;
    manifest.job = job_.name;
    manifest.step = 5;
    manifest.epoch = Epoch(1);
    manifest.tensors = {{"weight/b",
                         "F32",
                         {5},
                         {{"s0000.safetensors", 80, 20, {{0}, {5}}, {xxh3_128_hex(data)}}}}};
    manifest.files = {{"s0000.safetensors", 100, 80, xxh3_128_hex(header)}};
    fs::create_directories(saved());
    std::ofstream(saved() + "/s0000.safetensors") << header << data;
    std::ofstream(saved() + "/manifest.json") << to_text(manifest);
  }

  std::string saved() const { return run_->checkpoints(job_) + "/step-00000005.e1"; }
  /// Of everything that is made for runs of the job.
  std::vector<std::string> made() const {
    std::vector<std::string> names = *real_file_system().list(runs());
    if (job_.checkpoint.dir.empty()) return names;
    const auto saves = *real_file_system().list(job_.checkpoint.dir + "/forky");
    for (const std::string& name : saves) names.push_back("saves/" + name);
    return names;
  }
  std::string runs() const { return directory_.path() + "/motley/runs/forky"; }

  testing::TemporaryDirectory directory_;
  JobSpec job_;
  std::optional<RunDirectory> run_;
};

TEST_P(ForkRun, TheNewRunHasItAll) {
  const auto forked = fork_run(*run_, job_, 5);
  ASSERT_TRUE(forked) << forked.error().to_string();
  EXPECT_EQ(forked->title(), "forky/2");
  ASSERT_EQ(forked->committed(job_).size(), 1u);
  EXPECT_EQ(forked->committed(job_).front().step, 5);
  EXPECT_EQ(fs::file_size(forked->checkpoints(job_) + "/step-00000005.e1/s0000.safetensors"), 100u);
  EXPECT_EQ(*forked->read("fleet.json"), "{}");
  EXPECT_EQ(read_metrics(forked->file("metrics.jsonl")).size(),
            read_metrics(run_->file("metrics.jsonl")).size());
  EXPECT_EQ(run_->committed(job_).size(), 1u) << "the earlier run stays as it is";
}

TEST_P(ForkRun, AFailureHalfWayLeavesNoRun) {
  const std::vector<std::string> before = made();
  fs::remove(saved() + "/s0000.safetensors");
  const auto missing = fork_run(*run_, job_, 5);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(made(), before);
}

TEST_P(ForkRun, ADamagedShardIsNotTaken) {
  const std::vector<std::string> before = made();
  for (const int at : {3, 90}) {
    save();
    std::fstream shard(saved() + "/s0000.safetensors");
    shard.seekp(at);
    shard << 'X';
    shard.close();
    const auto damaged = fork_run(*run_, job_, 5);
    ASSERT_FALSE(damaged);
    EXPECT_EQ(damaged.error().code, ErrorCode::kCorrupt);
    EXPECT_THAT(damaged.error().message,
                HasSubstr(saved() + "/s0000.safetensors does not match its checksum"));
    EXPECT_EQ(made(), before);
  }
}

TEST_P(ForkRun, AnUnknownStepIsRefusedNamingThoseThereAre) {
  const auto unknown = fork_run(*run_, job_, 6);
  ASSERT_FALSE(unknown);
  EXPECT_THAT(unknown.error().message, HasSubstr("it has: 5"));
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, ForkRun, ::testing::Values("", "saves"),
                         [](const auto& tested) {
                           return std::string(*tested.param == '\0' ? "within" : "elsewhere");
                         });

}  // namespace
}  // namespace motley
