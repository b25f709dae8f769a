#include "scheduler/runner/rank_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/support/temporary_directory.h"

namespace motley::testing {
namespace {

using ::testing::IsEmpty;

class RankOutputTest : public ::testing::Test {
 protected:
  void write(const std::string& text) const { std::ofstream(log_, std::ios::app) << text; }
  /// Runs what is asked of a host on this one, where the log has another name; not at all the first
  /// time.
  std::string agent() const {
    const std::string path = scratch_.path() + "/agent";
    std::ofstream(path)
        << "#!/bin/sh\n[ -e " << path << ".once ] || { touch " << path
        << ".once; exit 255; }\nexec sh -c \"$(echo \"$2\" | sed s/there.log/here.log/)\"\n";
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path;
  }
  static std::string awaited(RankOutput* output) {
    std::string text;
    for (int tries = 0; text.empty() && tries < 2000; ++tries) {
      text = output->next();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return text;
  }

  TemporaryDirectory scratch_;
  const std::string log_ = scratch_.path() + "/here.log";
};

TEST_F(RankOutputTest, ComesInWholeLines) {
  RankOutput output(log_, "", "");
  EXPECT_THAT(output.next(), IsEmpty());
  write("one\ntw");
  EXPECT_EQ(output.next(), "one\n");
  EXPECT_THAT(output.next(), IsEmpty());
  write("o\nthree");
  EXPECT_EQ(output.next(), "two\n");
  EXPECT_EQ(output.rest(), "three");
  EXPECT_THAT(output.rest(), IsEmpty());
}

TEST_F(RankOutputTest, ComesFromAnotherHostThatDoesNotAlwaysAnswer) {
  RankOutput output(scratch_.path() + "/there.log", "elsewhere", agent());
  write("one\ntw");
  EXPECT_EQ(awaited(&output), "one\n");
  write("o\n");
  EXPECT_EQ(awaited(&output), "two\n");
  const std::string much(200'000, 'x');
  write(much);
  EXPECT_EQ(output.rest(), much);
}

TEST_F(RankOutputTest, IsReadHereWhereTheFileSystemIsShared) {
  RankOutput output(log_, "elsewhere", "/bin/false");
  write("one\ntwo");
  EXPECT_EQ(output.next(), "one\n");
  EXPECT_EQ(output.rest(), "two");
}

}  // namespace
}  // namespace motley::testing
