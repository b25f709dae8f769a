#include "scheduler/cli/output_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/support/temporary_directory.h"

namespace motley {
namespace {

namespace fs = std::filesystem;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class OutputFile : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return directory_.path() + "/" + name; }
  std::string text(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(path(name)).rdbuf();
    return text.str();
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(directory_.path()))
      names.push_back(entry.path().filename().string());
    return names;
  }

  testing::TemporaryDirectory directory_;
};

TEST_F(OutputFile, ReplacesAFileAndKeepsItsPermissions) {
  ASSERT_TRUE(write_output_file(path("plan.json"), "old"));
  ASSERT_EQ(::chmod(path("plan.json").c_str(), 0640), 0);
  ASSERT_TRUE(write_output_file(path("plan.json"), "new"));
  EXPECT_EQ(text("plan.json"), "new");
  EXPECT_EQ(fs::status(path("plan.json")).permissions(), fs::perms(0640));
  EXPECT_THAT(names(), UnorderedElementsAre("plan.json"));
}

TEST_F(OutputFile, TouchesNothingBesideIt) {
  fs::create_directories(path("plan.json.tmp/precious"));
  fs::create_directories(path("plan.json.tmp-" + std::to_string(::getpid())));
  ASSERT_TRUE(write_output_file(path("plan.json"), "new"));
  EXPECT_TRUE(fs::exists(path("plan.json.tmp/precious")));
  EXPECT_EQ(names().size(), 3u);
}

TEST_F(OutputFile, FollowsLinksAlsoToWhatIsNotThereYet) {
  fs::create_directory(path("elsewhere"));
  std::ofstream(path("elsewhere/there")) << "old";
  fs::create_symlink("elsewhere/there", path("link"));
  fs::create_symlink("new", path("elsewhere/second"));
  fs::create_symlink("elsewhere/second", path("dangling"));
  ASSERT_TRUE(write_output_file(path("link"), "x"));
  ASSERT_TRUE(write_output_file(path("dangling"), "y"));
  EXPECT_TRUE(fs::is_symlink(path("link")) && fs::is_symlink(path("dangling")));
  EXPECT_EQ(text("elsewhere/there"), "x");
  EXPECT_EQ(text("elsewhere/new"), "y");
  fs::create_symlink("round", path("round"));
  EXPECT_FALSE(write_output_file(path("round"), "z"));
}

TEST_F(OutputFile, WritesIntoWhatIsNoRegularFile) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  const int reader = ::open(path("pipe").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(reader, 0);
  ASSERT_TRUE(write_output_file(path("pipe"), "through"));
  char got[16] = "";
  EXPECT_EQ(::read(reader, got, sizeof got), 7);
  EXPECT_STREQ(got, "through");
  ::close(reader);
  EXPECT_TRUE(fs::is_fifo(path("pipe")));
}

TEST_F(OutputFile, SaysWhyItCannot) {
  EXPECT_EQ(write_output_file(path("missing/plan.json"), "x").error().code, ErrorCode::kNotFound);
  const auto directory = write_output_file(directory_.path(), "x");
  ASSERT_FALSE(directory);
  EXPECT_EQ(directory.error().message, "cannot write " + directory_.path() + ": Is a directory");
  EXPECT_THAT(names(), IsEmpty());
}

}  // namespace
}  // namespace motley
