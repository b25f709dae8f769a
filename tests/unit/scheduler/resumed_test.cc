#include "scheduler/run/resumed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "core/spec/reader.h"
#include "tests/support/temporary_directory.h"

namespace motley {
namespace {

using ::testing::HasSubstr;

class ResumedTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ::setenv("XDG_STATE_HOME", directory_.path().c_str(), 1);
    std::ofstream(directory_.path() + "/text.txt") << std::string(400, 'a');
  }

  /// A job file that says so.
  std::string file(int64_t steps, int layers = 1) const {
    const std::string path = directory_.path() + "/job.yaml";
    std::ofstream(path) << "version: 1\nname: tiny\nmodel: {type: gpt, layers: " << layers
                        << ", heads: 1, width: 8, context: 8}\ndata: {text: [text.txt]}\n"
                        << "train: {global_batch: 4, steps: " << steps << "}\n";
    return path;
  }

  testing::TemporaryDirectory directory_;
};

TEST_F(ResumedTest, AJobFileIsTakenAsItSaysNow) {
  const auto started = RunDirectory::create(*read_job(file(10)));
  ASSERT_TRUE(started) << started.error().to_string();
  std::ofstream(started->file("metrics.jsonl")) << "{\"step\":1}\n";
  const auto longer = find_resumed(file(20));
  ASSERT_TRUE(longer) << longer.error().to_string();
  EXPECT_EQ(longer->run.title(), "tiny/1");
  EXPECT_EQ(longer->job.train.steps, 20);
  const auto named = find_resumed("tiny");
  ASSERT_TRUE(named) << named.error().to_string();
  EXPECT_EQ(named->job.train.steps, 10);
  const auto other = find_resumed(file(20, 2));
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, ErrorCode::kInvalidSpec);
  EXPECT_THAT(other.error().message, HasSubstr("model.layers has changed"));
}

TEST_F(ResumedTest, AJobThatNeverRanIsNotFound) {
  const auto none = find_resumed(file(10));
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace motley
