#include "scheduler/launch/mpirun_account.h"

#include <gtest/gtest.h>

namespace motley {
namespace {

// What mpirun of Open MPI 4.1.4 wrote, as Debian installs it.

constexpr const char* kPreamble =
    R"(--------------------------------------------------------------------------
Primary job  terminated normally, but 1 process returned
a non-zero exit code. Per user-direction, the job has been aborted.
--------------------------------------------------------------------------
)";

constexpr const char* kSignal =
    R"(--------------------------------------------------------------------------
mpirun.openmpi noticed that process rank 11 with PID 0 on node a1-gpu.lab exited on signal 9 (Killed).
--------------------------------------------------------------------------
)";

constexpr const char* kStatus =
    R"(--------------------------------------------------------------------------
mpirun.openmpi detected that one or more processes exited with non-zero status, thus causing
the job to be terminated. The first process to do so was:

  Process name: [[12539,1],2]
  Exit code:    78
--------------------------------------------------------------------------
)";

constexpr const char* kNoFinalize =
    R"(--------------------------------------------------------------------------
mpirun.openmpi has exited due to process rank 1 with PID 0 on
node vm exiting improperly. There are three reasons this could occur:

1. this process did not call "init" before exiting, but others in
the job did. This can cause a job to hang indefinitely while it waits
for all processes to call "init". By rule, if one process calls "init",
then ALL processes must call "init" prior to termination.
--------------------------------------------------------------------------
)";

TEST(MpirunAccount, NamesTheRankThatASignalEnded) {
  const auto exit = first_failure_in(std::string(kPreamble) + kSignal);
  ASSERT_TRUE(exit);
  EXPECT_EQ(exit->rank, 11);
  EXPECT_EQ(exit->code, ErrorCode::kRunFailed);
  EXPECT_EQ(exit->how, "signal 9 (Killed)");
}

TEST(MpirunAccount, NamesASignalWithoutAName) {
  const auto exit = first_failure_in(
      "mpirun noticed that process rank 0 with PID 77 on node a exited on signal 40.\n");
  ASSERT_TRUE(exit);
  EXPECT_EQ(exit->rank, 0);
  EXPECT_EQ(exit->how, "signal 40");
}

TEST(MpirunAccount, NamesTheRankThatEndedWithAStatusAndItsMeaning) {
  const auto exit = first_failure_in(std::string(kPreamble) + kStatus);
  ASSERT_TRUE(exit);
  EXPECT_EQ(exit->rank, 2);
  EXPECT_EQ(exit->code, ErrorCode::kBrokenInstall);
  EXPECT_EQ(exit->how, "status 78");
}

TEST(MpirunAccount, NamesTheRankThatLeftWithoutFinalizing) {
  const auto exit = first_failure_in(kNoFinalize);
  ASSERT_TRUE(exit);
  EXPECT_EQ(exit->rank, 1);
  EXPECT_EQ(exit->how, "left without MPI_Finalize");
}

TEST(MpirunAccount, NamesNobodyWhenMpirunDoesNot) {
  for (const char* text : {"", kPreamble, "ssh: connect to host a1 port 22: Connection refused\n",
                           "mpirun noticed that the job aborted, but has no info as to the "
                           "process\nthat caused that situation.\n",
                           "  Process name: [[12539,1],99999999999]\n  Exit code:    1\n"})
    EXPECT_FALSE(first_failure_in(text)) << text;
}

}  // namespace
}  // namespace motley
