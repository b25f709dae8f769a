// What every launcher must do, with real processes.

#include "scheduler/launch/launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <thread>

#include "scheduler/launch/environment.h"
#include "scheduler/launch/log_file.h"
#include "scheduler/launch/process_tree.h"
#include "scheduler/launch/scratch.h"
#include "scheduler/launch/this_host.h"
#include "tests/support/require.h"
#include "tests/support/scripted_launcher.h"

namespace motley {
namespace {

using ::testing::HasSubstr;

struct LauncherCase {
  std::string name;
  std::function<std::unique_ptr<Launcher>()> make;
  bool needs_mpi = false;
};

class LauncherContract : public ::testing::TestWithParam<LauncherCase> {
 protected:
  void SetUp() override {
    if (GetParam().needs_mpi && find_program("mpirun").empty())
      MOTLEY_SKIP_WITHOUT("mpi", "mpirun is not installed");
    auto scratch = Scratch::create();
    ASSERT_TRUE(scratch) << scratch.error().to_string();
    scratch_.emplace(std::move(*scratch));
    logs_ = scratch_->path() + "/logs";
    std::filesystem::create_directory(logs_);
  }

  LaunchRequest request(int ranks, const std::string& script) const {
    LaunchRequest request;
    for (int rank = 0; rank < ranks; ++rank)
      request.ranks.push_back({"here/" + std::to_string(rank), own_host_name(), "cpu"});
    request.command = {"/bin/sh", "-c", script};
    request.log_directory = logs_;
    request.scratch_directory = scratch_->path();
    request.shared_memory_directory = scratch_->shared_memory();
    return request;
  }

  std::unique_ptr<Launched> launch(const LaunchRequest& request) {
    auto launched = GetParam().make()->launch(request);
    EXPECT_TRUE(launched) << launched.error().to_string();
    return launched ? std::move(*launched) : nullptr;
  }

  /// Waits on exit_fd, which must become readable exactly when it has ended.
  static LaunchEnd end_of(Launched& launched) {
    pollfd watched{launched.exit_fd(), POLLIN, 0};
    EXPECT_EQ(::poll(&watched, 1, 30'000), 1);
    const auto end = launched.end();
    EXPECT_TRUE(end) << "still running";
    return end.value_or(LaunchEnd{});
  }

  std::string log(int rank) const {
    std::ostringstream text;
    text << std::ifstream(rank_log_path(logs_, rank)).rdbuf();
    return text.str();
  }

  /// Waits until every rank has written `word` to its log.
  void wait_for_logs(int ranks, const std::string& word) const {
    for (int rank = 0; rank < ranks; ++rank)
      while (log(rank).find(word) == std::string::npos) std::this_thread::yield();
  }

  std::optional<Scratch> scratch_;
  std::string logs_;
};

TEST_P(LauncherContract, EveryRankRunsWithItsNumberAndItsOwnLog) {
  auto launched = launch(request(3, "echo rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE"));
  const LaunchEnd end = end_of(*launched);
  EXPECT_FALSE(end.error) << end.error->to_string();
  EXPECT_FALSE(end.first);
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_EQ(log(rank), "rank " + std::to_string(rank) + " of 3\n");
}

TEST_P(LauncherContract, PassesTheEnvironmentToEveryRank) {
  LaunchRequest with_variable = request(2, "echo $MOTLEY_TEST_WORD");
  with_variable.environment = {"MOTLEY_TEST_WORD=two words"};
  auto launched = launch(with_variable);
  EXPECT_FALSE(end_of(*launched).error);
  EXPECT_EQ(log(0), "two words\n");
  EXPECT_EQ(log(1), "two words\n");
}

TEST_P(LauncherContract, AFailingRankEndsTheOthersAndGivesItsStatus) {
  auto launched = launch(request(3, "test $OMPI_COMM_WORLD_RANK = 1 && exit 78; exec sleep 1000"));
  const LaunchEnd end = end_of(*launched);
  ASSERT_TRUE(end.error);
  EXPECT_EQ(end.error->code, ErrorCode::kBrokenInstall);
  EXPECT_THAT(end.error->message, HasSubstr("status 78"));
  EXPECT_FALSE(end.crashed);
  // mpirun may not know it of a rank that fails while others are still being started.
  EXPECT_EQ(end.first ? end.first->rank : 1, 1);
}

TEST_P(LauncherContract, AKilledRankIsAFailure) {
  auto launched =
      launch(request(2, "test $OMPI_COMM_WORLD_RANK = 1 && kill -9 $$; exec sleep 1000"));
  const LaunchEnd end = end_of(*launched);
  ASSERT_TRUE(end.error);
  EXPECT_EQ(end.error->code, ErrorCode::kRunFailed);
  EXPECT_EQ(end.first ? end.first->rank : 1, 1);
}

TEST_P(LauncherContract, TheEndOfTheLaunchingProgramItselfIsNoRanks) {
  auto launched = launch(request(2, "echo up; exec sleep 1000"));
  wait_for_logs(2, "up");
  ::kill(launched->processes().front(), SIGKILL);  // our own child comes first
  const LaunchEnd end = end_of(*launched);
  ASSERT_TRUE(end.error);
  EXPECT_THAT(end.error->message, HasSubstr("signal 9"));
  EXPECT_TRUE(end.crashed);
  EXPECT_FALSE(end.first);
}

TEST_P(LauncherContract, IsNotFinishedWhileRanksRun) {
  auto launched = launch(request(2, "echo up; exec sleep 1000"));
  wait_for_logs(2, "up");
  EXPECT_FALSE(launched->end());
  EXPECT_GE(launched->processes().size(), 3u);
}

TEST_P(LauncherContract, KillAllLeavesNoProcessNotEvenOnesWithASessionOfTheirOwn) {
  const std::vector<pid_t> before = descendants_of(::getpid());
  auto launched = launch(
      request(2, "setsid sh -c 'echo helper; exec sleep 1000' & setsid -f sleep 1000; wait"));
  wait_for_logs(2, "helper");
  launched->kill_all();
  EXPECT_TRUE(launched->processes().empty());
  EXPECT_EQ(descendants_of(::getpid()), before);
}

TEST_P(LauncherContract, KillAllEndsStoppedProcesses) {
  auto launched = launch(request(2, "echo up; kill -STOP $$"));
  wait_for_logs(2, "up");
  launched->kill_all();
  EXPECT_TRUE(launched->processes().empty());
}

TEST_P(LauncherContract, AMissingProgramIsABrokenInstallation) {
  LaunchRequest missing = request(2, "");
  missing.command = {"/nowhere/motley-worker", "version"};
  const auto launched = GetParam().make()->launch(missing);
  ASSERT_FALSE(launched);
  EXPECT_EQ(launched.error().code, ErrorCode::kBrokenInstall);
  EXPECT_NE(launched.error().message.find("/nowhere/motley-worker"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(
    All, LauncherContract,
    ::testing::Values(LauncherCase{"mpirun", [] { return mpirun_launcher(); }, true},
                      LauncherCase{"scripted", [] { return testing::scripted_launcher(); }, false}),
    [](const auto& tested) { return tested.param.name; });

TEST(ScriptedLauncher, EndsAsTold) {
  auto scratch = Scratch::create();
  ASSERT_TRUE(scratch);
  LaunchRequest request;
  request.ranks = {{"here/0", "localhost", "cpu"}, {"here/1", "localhost", "cpu"}};
  request.command = {"/bin/sleep", "1000"};
  request.log_directory = scratch->path();
  const auto launched = testing::scripted_launcher(
                            {{.rank = 1, .after = Nanos(1000), .status = 0, .signal = SIGSEGV}})
                            ->launch(request);
  ASSERT_TRUE(launched);
  pollfd watched{(*launched)->exit_fd(), POLLIN, 0};
  ASSERT_EQ(::poll(&watched, 1, 30'000), 1);
  const auto end = (*launched)->end();
  ASSERT_TRUE(end && end->error && end->first);
  EXPECT_THAT(end->error->message, HasSubstr("status 139"));
  EXPECT_EQ(end->first->rank, 1);
  EXPECT_THAT(end->first->how, HasSubstr("signal 11"));
}

}  // namespace
}  // namespace motley
