#include "scheduler/runner/rank_log.h"

#include <gtest/gtest.h>

#include <fstream>

#include "scheduler/launch/log_file.h"
#include "tests/support/temporary_directory.h"

namespace motley {
namespace {

class WithLog : public ::testing::Test {
 protected:
  /// The message of `end` without where to read more.
  std::string told(const AttemptEnd& end) const {
    RankPlacement here;
    here.host = "localhost";
    const std::string message = with_log(end, {here}, directory_.path()).message;
    return message.substr(0, message.rfind(" (log: "));
  }
  static AttemptEnd end_of(int rank, bool in_own_words) {
    return {Outcome::kFailed, Error{ErrorCode::kRunFailed, "it failed", {}}, rank, in_own_words};
  }
  void write_rank_log(const std::string& text) const {
    std::ofstream(rank_log_path(directory_.path(), 0)) << text;
  }
  void write_launch_log(const std::string& text) const {
    std::ofstream(launch_log_path(directory_.path())) << text;
  }

  testing::TemporaryDirectory directory_;
};

TEST_F(WithLog, QuotesTheLastWordsOfARank) {
  write_rank_log("motley-worker: no space left\n");
  EXPECT_EQ(told(end_of(0, false)), "it failed: no space left");
  write_rank_log("terminate called\n");
  EXPECT_EQ(told(end_of(0, false)), "it failed: terminate called");
  write_rank_log("18:29:41.108 rank 0 error: no memory\n");
  EXPECT_EQ(told(end_of(0, false)), "it failed: 18:29:41.108 rank 0 error: no memory");
}

TEST_F(WithLog, DoesNotQuoteWhatTellsOfNothingWrong) {
  for (const char* level : {"info", "warning"}) {
    write_rank_log("18:29:41.108 rank 0 " + std::string(level) + ": counted memory\n");
    EXPECT_EQ(told(end_of(0, false)), "it failed");
  }
}

TEST_F(WithLog, QuotesMpirunOnlyWhereNobodySaidWhy) {
  write_launch_log("-----\nThere are not enough slots\n");
  EXPECT_EQ(told(end_of(-1, false)), "it failed: There are not enough slots");
  EXPECT_EQ(told(end_of(-1, true)), "it failed");
  write_launch_log("-----\nMPI_ABORT was invoked on rank 0 in communicator MPI_COMM_WORLD\n");
  EXPECT_EQ(told(end_of(-1, false)), "it failed");
}

}  // namespace
}  // namespace motley
