#include "scheduler/launch/bounded_log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/file_system.h"
#include "scheduler/launch/child_process.h"
#include "tests/support/temporary_directory.h"

namespace motley {
namespace {

using ::testing::EndsWith;
using ::testing::StartsWith;

class BoundedLogTest : public ::testing::Test {
 protected:
  std::string text() const { return *read_text(real_file_system(), path_, Bytes(1 << 20)); }

  const testing::TemporaryDirectory directory_;
  const std::string path_ = directory_.path() + "/log";
  const Fd file_{::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)};
};

TEST_F(BoundedLogTest, IsCutAtItsLimitAndKeepsTheLastLines) {
  BoundedLog log(file_.get(), Bytes(100));
  log.write(std::string(60, 'a') + "\n");
  log.write(std::string(60, 'b') + "\n");
  const std::string cut = std::string(60, 'a') + "\n" + std::string(39, 'b') + "\nmotley: ";
  EXPECT_THAT(text(), StartsWith(cut));
  EXPECT_THAT(
      text(),
      EndsWith("(motley serve --log-limit): what follows is dropped, but for the last lines\n"));
  const size_t size = text().size();
  for (int i = 0; i < 2000; ++i) log.write("line " + std::to_string(i) + "\n");
  EXPECT_EQ(text().size(), size);
  log.end();
  EXPECT_THAT(text(), EndsWith("\nline 1998\nline 1999\n"));
  EXPECT_THAT(text().substr(size), StartsWith("line "));
  EXPECT_LE(text().size(), size + 4096);
}

TEST_F(BoundedLogTest, WhatIsInTheFileAlreadyCounts) {
  BoundedLog(file_.get(), Bytes(100)).write(std::string(90, 'a'));
  BoundedLog(file_.get(), Bytes(100)).write(std::string(20, 'b'));
  EXPECT_THAT(text(), StartsWith(std::string(90, 'a') + std::string(10, 'b') + "\nmotley: "));
}

TEST_F(BoundedLogTest, WithoutALimitAllIsKept) {
  BoundedLog log(file_.get(), Bytes(0));
  log.write(std::string(1000, 'a'));
  log.end();
  EXPECT_EQ(text(), std::string(1000, 'a'));
}

}  // namespace
}  // namespace motley
