// One attempt with real processes: `motley runner`, mpirun, and ranks that misbehave as told.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "core/attempt.h"
#include "core/clock.h"
#include "scheduler/launch/environment.h"
#include "scheduler/launch/process_tree.h"
#include "scheduler/launch/this_host.h"
#include "scheduler/runner/runner_client.h"
#include "tests/support/paths.h"
#include "tests/support/require.h"
#include "tests/support/temporary_directory.h"

namespace motley {
namespace {

using ::testing::HasSubstr;

class Runner : public ::testing::Test {
 protected:
  void SetUp() override {
    if (find_program("mpirun").empty()) MOTLEY_SKIP_WITHOUT("mpi", "mpirun is not installed");
    if (!std::filesystem::exists(testing::bin_dir().parent_path() / "lib/motley_mpi.so"))
      MOTLEY_SKIP_WITHOUT("mpi", "built without MPI");
    ::setenv("MOTLEY_WORKER", (testing::bin_dir() / "tests/fake_worker").c_str(), 1);
  }
  void TearDown() override {
    client_.reset();
    ::unsetenv("MOTLEY_FAKE");
    EXPECT_THAT(descendants_of(::getpid()), ::testing::IsEmpty());
  }

  void start(int ranks, const std::string& told, int steps = 5) {
    ::setenv("MOTLEY_FAKE", told.c_str(), 1);
    Attempt attempt;
    attempt.epoch = Epoch(3);
    attempt.run_dir = directory_.path();
    attempt.job.name = "fake";
    attempt.job.model = {"gpt", 1, 1, 8, 8, 256};
    attempt.job.train.global_batch = ranks;
    attempt.job.train.steps = steps;
    attempt.plan.global_batch = ranks;
    attempt.plan.grain = 1;
    for (int rank = 0; rank < ranks; ++rank) {
      const std::string id = "here/" + std::to_string(rank);
      attempt.plan.ranks.push_back({id, own_host_name(), "cpu"});
      ReplicaPlan replica;
      replica.stages = {{0, layer_count(attempt.job.model) - 1, {Rank(rank)}, {1.0}}};
      replica.micro_batch = 1;
      replica.grains = 1;
      attempt.plan.replicas.push_back(replica);
    }
    attempt.plan.owners = even_ownership(attempt.plan, attempt.job.model);
    const std::string document = directory_.path() + "/attempt.json";
    std::ofstream(document) << to_json(attempt).dump();
    auto client = RunnerClient::start({.program = (testing::bin_dir() / "motley").string(),
                                       .kind = AssignmentKind::kTrain,
                                       .document = document,
                                       .rsh_agent = "",
                                       .lock_fd = -1});
    ASSERT_TRUE(client) << client.error().to_string();
    client_ = std::move(*client);
  }

  /// Reads events until `event` has come `times` times; false when the runner ended first.
  bool wait_for(const std::string& event, int times = 1) {
    while (!client_->over()) {
      if (const auto line = client_->next()) {
        ++seen_[line->event];
        if (line->event == "hello")
          got_in_.insert(nlohmann::json::parse(line->data).at("rank").get<int>());
        if (line->event == event && --times == 0) return true;
      } else {
        pollfd watched{client_->output_fd(), POLLIN, 0};
        ::poll(&watched, 1, 1000);
      }
    }
    return false;
  }

  AttemptEnd end() {
    wait_for("");
    return client_->end();
  }

  testing::TemporaryDirectory directory_;
  std::unique_ptr<RunnerClient> client_;
  std::map<std::string, int> seen_;
  std::set<int> got_in_;  ///< ranks whose hello was accepted
};

TEST_F(Runner, RunsAnAttemptToItsEnd) {
  start(3, "", 4);
  const AttemptEnd result = end();
  EXPECT_EQ(result.outcome, Outcome::kFinished) << result.error.message;
  EXPECT_EQ(seen_["hello"], 3);
  EXPECT_EQ(seen_["step"], 12);
  EXPECT_EQ(seen_["done"], 3);
}

TEST_F(Runner, NamesTheRankThatDied) {
  start(3, "die:1:2");
  const AttemptEnd result = end();
  EXPECT_EQ(result.outcome, Outcome::kFailed);
  EXPECT_EQ(result.rank, 1);
  EXPECT_THAT(result.error.message,
              HasSubstr("rank 1 on here/1 (cpu) died in phase training: signal 9 (Killed)"));
  EXPECT_THAT(result.error.message, HasSubstr("rank-0001.log"));
}

TEST_F(Runner, PassesOnWhatAFailingRankSays) {
  start(2, "fail:0:3");
  const AttemptEnd result = end();
  EXPECT_EQ(result.rank, 0);
  EXPECT_EQ(result.error.code, ErrorCode::kDeviceLost);
  EXPECT_THAT(result.error.message, HasSubstr("the fake device is lost"));
}

TEST_F(Runner, NoticesARankThatFallsSilent) {
  start(2, "mute:1:2");
  const AttemptEnd result = end();
  EXPECT_EQ(result.rank, 1);
  EXPECT_THAT(result.error.message, HasSubstr("silent"));
}

TEST_F(Runner, NoticesAStoppedRank) {
  start(2, "", 1'000'000);
  ASSERT_TRUE(wait_for("step", 10));
  for (const pid_t pid : descendants_of(client_->pid())) ::kill(pid, SIGSTOP);
  EXPECT_EQ(end().outcome, Outcome::kFailed);
}

TEST_F(Runner, AnExitWithoutDoneIsAFailureEvenWithStatusZero) {
  start(2, "liar:1:2");
  const AttemptEnd result = end();
  EXPECT_EQ(result.outcome, Outcome::kFailed);
  EXPECT_EQ(result.rank, 1);
}

TEST_F(Runner, StopsInGoodOrder) {
  start(2, "", 1'000'000);
  ASSERT_TRUE(wait_for("step", 10));
  client_->send("stop");
  EXPECT_EQ(end().outcome, Outcome::kStopped);
}

TEST_F(Runner, KillsOnRequest) {
  start(2, "", 1'000'000);
  ASSERT_TRUE(wait_for("step", 10));
  client_->send("kill");
  EXPECT_EQ(end().outcome, Outcome::kFailed);
}

TEST_F(Runner, ADaemonOfARankDoesNotOutliveTheAttempt) {
  start(2, "daemon:0 daemon:1");
  EXPECT_EQ(end().outcome, Outcome::kFinished);  // TearDown looks for what is left
}

TEST_F(Runner, AKilledMpirunIsAFailure) {
  start(2, "daemon:0", 1'000'000);
  ASSERT_TRUE(wait_for("step", 10));
  for (const pid_t pid : descendants_of(client_->pid())) {
    std::string name;
    std::getline(std::ifstream("/proc/" + std::to_string(pid) + "/comm"), name);
    if (name.rfind("mpirun", 0) == 0) ::kill(pid, SIGKILL);
  }
  const AttemptEnd result = end();
  EXPECT_EQ(result.outcome, Outcome::kFailed);
  EXPECT_THAT(result.error.message, HasSubstr("signal 9"));
}

TEST_F(Runner, AKilledRunnerLeavesNothing) {
  start(2, "daemon:0 daemon:1", 1'000'000);
  ASSERT_TRUE(wait_for("step", 10));
  ::kill(client_->pid(), SIGKILL);
  const AttemptEnd result = end();
  EXPECT_EQ(result.outcome, Outcome::kFailed);
  EXPECT_THAT(result.error.message, HasSubstr("signal 9"));
}

TEST_F(Runner, ALostParentEndsTheAttempt) {
  start(2, "daemon:0", 1'000'000);
  ASSERT_TRUE(wait_for("step", 10));
  client_.reset();  // closes its stdin and waits; TearDown looks for what is left
}

TEST_F(Runner, RefusesStrangers) {
  start(2, "stranger:1");
  const AttemptEnd result = end();
  EXPECT_EQ(result.outcome, Outcome::kFailed);
  EXPECT_EQ(result.rank, 1);
  EXPECT_THAT(result.error.message,
              HasSubstr("rank 1 on here/1 (cpu) was refused: its key is not this attempt's"));
  EXPECT_EQ(got_in_.count(1), 0u);
}

TEST_F(Runner, RefusesRanksOfAnOlderEpoch) {
  start(2, "old:1");
  const AttemptEnd result = end();
  EXPECT_EQ(result.outcome, Outcome::kFailed);
  EXPECT_EQ(result.rank, 1);
  EXPECT_THAT(result.error.message,
              HasSubstr("rank 1 on here/1 (cpu) was refused: it belongs to attempt 2, not 3"));
  EXPECT_EQ(got_in_.count(1), 0u);
}

TEST_F(Runner, LeavesNoScratchBehind) {
  start(2, "die:0:2");
  end();
  std::ifstream file(directory_.path() + "/attempt.json");
  const std::filesystem::path key_file = nlohmann::json::parse(file).at("key_file");
  const std::filesystem::path scratch = key_file.parent_path();
  ASSERT_FALSE(scratch.filename().empty());
  EXPECT_FALSE(std::filesystem::exists(scratch));
  EXPECT_FALSE(
      std::filesystem::exists("/dev/shm" / scratch.parent_path().filename() / scratch.filename()));
}

}  // namespace
}  // namespace motley
