// `mpirun motley-worker train` typed by hand: real processes, real MPI, no runner.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/attempt_result.h"
#include "core/clock.h"
#include "core/file_system.h"
#include "core/spec/json.h"
#include "tests/e2e/small_run.h"
#include "tests/support/paths.h"

namespace motley::testing {
namespace {

using ::testing::HasSubstr;

struct Ended {
  int status = 0;  ///< as a shell shows it
  std::string output;
};

/// Runs a command line to its end; stdout and stderr together.
Ended shell(const std::string& command) {
  Ended ended;
  FILE* pipe = popen(("(" + command + ") 2>&1").c_str(), "r");
  std::array<char, 4096> bytes;
  while (const size_t n = fread(bytes.data(), 1, bytes.size(), pipe))
    ended.output.append(bytes.data(), n);
  const int status = pclose(pipe);
  ended.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return ended;
}

/// Waits for a checkpoint of the process $launched, any: the first is soon removed.
std::string until_saved_in(const std::string& checkpoints) {
  return "until ls -d " + checkpoints +
         "/step-* >/dev/null 2>&1 || ! kill -0 $launched; do sleep 0.02; done";
}

class ByHand : public ::testing::Test {
 protected:
  /// Three unequal ranks, twelve steps, a checkpoint every four; job.json and plan.json as
  /// `motley plan -o` writes them.
  void write_documents(int64_t steps, const std::string& checkpoints = "") {
    SmallRun run;
    run.grains = {2, 1, 1};
    run.steps = steps;
    run.save_every = 4;
    write_documents(run, checkpoints);
  }
  void write_documents(const SmallRun& run, const std::string& checkpoints = "") {
    Attempt attempt = small_attempt(run, scratch_.path());
    attempt.job.checkpoint.dir = checkpoints;
    for (size_t rank = 0; rank < attempt.plan.ranks.size(); ++rank)
      attempt.fleet.devices[rank].host = attempt.plan.ranks[rank].host;
    nlohmann::json plan = to_json(attempt.plan);
    plan["fleet"] = to_json(attempt.fleet);
    std::ofstream(path("job.json")) << to_json(attempt.job).dump();
    std::ofstream(path("plan.json")) << plan.dump();
  }
  /// Devices so fast that the real work always takes longer.
  void let_everything_overrun() const {
    auto plan = nlohmann::json::parse(std::ifstream(path("plan.json")));
    FleetSpec fleet = *fleet_from_json(plan["fleet"]);
    fleet.clock = PaceClock::kSleep;
    fleet.pace_flops = 1e16;
    for (DeviceSpec& device : fleet.devices) device.paced->overhead = Nanos(0);
    plan["fleet"] = to_json(fleet);
    std::ofstream(path("plan.json")) << plan.dump();
  }
  std::string path(const std::string& name) const { return scratch_.path() + "/" + name; }
  std::string train(const std::string& run_dir, int ranks = 3,
                    const std::string& variables = "") const {
    return variables + " mpirun.openmpi --bind-to none -n " + std::to_string(ranks) + " " +
           (bin_dir() / "motley-worker").string() + " train --job " + path("job.json") +
           " --plan " + path("plan.json") + " --run-dir " + path(run_dir);
  }
  /// Bits of the loss by step; each step once and in order.
  std::vector<std::string> losses(const std::string& run_dir) const {
    std::ifstream file(path(run_dir) + "/metrics.jsonl");
    std::vector<std::string> bits;
    for (std::string line; std::getline(file, line);) {
      const auto json = nlohmann::json::parse(line);
      bits.push_back(json.at("loss_bits"));
      EXPECT_EQ(json.at("step"), bits.size());
    }
    return bits;
  }

  TemporaryDirectory scratch_;
};

TEST_F(ByHand, AKilledRankEndsTheRunAndTheSameCommandGoesOnBitForBit) {
  write_documents(12);
  const Ended whole = shell(train("whole"));
  ASSERT_EQ(whole.status, 0) << whole.output;

  const Ended killed = shell(train("killed", 3, "MOTLEY_FAILPOINT=kill_at_step_7:1"));
  EXPECT_NE(killed.status, 0);
  EXPECT_LT(losses("killed").size(), 7U);
  const Ended again = shell(train("killed"));
  ASSERT_EQ(again.status, 0) << again.output;
  EXPECT_THAT(again.output, HasSubstr("resumed at step 4"));
  EXPECT_EQ(losses("killed"), losses("whole"));
  const auto weights = [](const std::string& output) {
    return output.substr(output.rfind("weights "));
  };
  EXPECT_EQ(weights(again.output), weights(whole.output));
}

TEST_F(ByHand, HostsThatAverageGoOnFromTheSaveBeforeARankWasKilled) {
  SmallRun run;
  run.grains = {2, 1, 1};
  run.hosts = {0, 0, 1};
  run.across = 3;
  run.steps = 12;
  run.save_every = 4;
  write_documents(run);
  const Ended whole = shell(train("whole"));
  ASSERT_EQ(whole.status, 0) << whole.output;
  EXPECT_NE(shell(train("killed", 3, "MOTLEY_FAILPOINT=kill_at_step_7:2")).status, 0);
  const Ended again = shell(train("killed", 3, "MOTLEY_DEBUG=collectives"));
  ASSERT_EQ(again.status, 0) << again.output;
  EXPECT_THAT(again.output, HasSubstr("resumed at step 4"));
  EXPECT_EQ(losses("killed"), losses("whole"));
}

TEST_F(ByHand, EveryRanksTimesAndTheWeightsAreKeptForTheReport) {
  write_documents(12);
  const Ended ended = shell(train("run"));
  ASSERT_EQ(ended.status, 0) << ended.output;
  const auto result = read_attempt_result(real_file_system(), path("run/attempts/1"));
  ASSERT_TRUE(result) << result.error().to_string();
  EXPECT_THAT(ended.output, HasSubstr("weights " + result->weights_xxh3));
  std::vector<int64_t> samples;
  for (const RankActual& rank : result->ranks) {
    EXPECT_EQ(rank.device, "host/" + std::to_string(rank.rank));
    EXPECT_TRUE(rank.compute_seconds && rank.wait_seconds && rank.update_seconds);
    samples.push_back(rank.samples);
  }
  EXPECT_THAT(samples, ::testing::ElementsAre(12 * 4, 12 * 2, 12 * 2));
}

TEST_F(ByHand, ThreadsOfOneProcessTrainAsRanksUnderMpirunDo) {
  write_documents(12);
  const Ended processes = shell(train("processes"));
  ASSERT_EQ(processes.status, 0) << processes.output;
  const std::string threads = (bin_dir() / "motley-worker").string() + " train --job " +
                              path("job.json") + " --plan " + path("plan.json") + " --run-dir " +
                              path("threads") + " --ranks ";
  const Ended ended = shell(threads + "3");
  ASSERT_EQ(ended.status, 0) << ended.output;
  EXPECT_EQ(losses("threads"), losses("processes"));
  EXPECT_EQ(losses("threads").size(), 12U);
  const Ended two = shell(threads + "2");
  EXPECT_EQ(two.status, 2);
  EXPECT_THAT(two.output, HasSubstr("the plan is for 3 ranks, started were 2"));
  const Ended both = shell("mpirun.openmpi --bind-to none -n 2 " + threads + "3");
  EXPECT_EQ(both.status, 2);
  EXPECT_THAT(both.output, HasSubstr("start it without mpirun"));
}

/// Also in a rehearsal that would not be trustworthy: nothing is concluded from it yet.
TEST_F(ByHand, ASignalToMpirunSavesACheckpointAndTheSameCommandGoesOn) {
  write_documents(100'000);
  let_everything_overrun();
  // Asks as soon as there is something to lose.
  const Ended stopped =
      shell(train("run") + " & launched=$!; " + until_saved_in(path("run/checkpoints")) +
            "; kill -USR1 $launched; wait $launched");
  EXPECT_EQ(stopped.status, 75) << stopped.output;
  EXPECT_THAT(stopped.output, HasSubstr("run again to go on"));
  const size_t done = losses("run").size();
  write_documents(static_cast<int64_t>(done) + 3);
  const Ended again = shell(train("run"));
  EXPECT_EQ(again.status, 0) << again.output;
  EXPECT_THAT(again.output, HasSubstr("resumed at step " + std::to_string(done)));
  EXPECT_EQ(losses("run").size(), done + 3);
}

/// A second run beside one that saves in `checkpoints`; the first is stopped after it.
Ended beside(const std::string& first, const std::string& checkpoints, const std::string& second) {
  return shell(first + " >&2 & launched=$!; " + until_saved_in(checkpoints) + "; " + second +
               "; status=$?; kill -USR1 $launched; wait $launched; echo first ended with $?; "
               "exit $status");
}

TEST_F(ByHand, TwoRunsDoNotShareADirectory) {
  write_documents(100'000);
  const Ended ended = beside(train("run"), path("run/checkpoints"), train("run"));
  EXPECT_EQ(ended.status, 77) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr(path("run") + " is in use by another run or process"));
  EXPECT_THAT(ended.output, HasSubstr("first ended with 75"));
}

TEST_F(ByHand, TwoRunsDoNotShareAPlaceForCheckpoints) {
  write_documents(100'000, path("chosen"));
  const Ended ended = beside(train("one/a/run"), path("chosen/a/run"), train("two/a/run"));
  EXPECT_EQ(ended.status, 77) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr(path("chosen/a/run") + " is in use by another run"));
  EXPECT_THAT(ended.output, HasSubstr("first ended with 75"));
}

TEST_F(ByHand, ASampleSaysWhatIsWrongWithTheCheckpoints) {
  write_documents(5);
  const std::string sample =
      (bin_dir() / "motley-worker").string() + " sample --bytes 5 --run-dir " + path("run");
  const std::string checkpoints = path("run/checkpoints");
  std::filesystem::create_directories(path("run"));
  std::filesystem::copy(path("job.json"), path("run/job.json"));
  Ended ended = shell(sample);
  EXPECT_EQ(ended.status, 66);
  EXPECT_THAT(ended.output, HasSubstr("no checkpoint in " + checkpoints + ": train first"));
  std::ofstream(checkpoints) << "no directory";
  ended = shell(sample);
  EXPECT_EQ(ended.status, 1);
  EXPECT_THAT(ended.output, HasSubstr("cannot list " + checkpoints));
  ended = shell(train("run"));
  EXPECT_EQ(ended.status, 1);
  EXPECT_THAT(ended.output, HasSubstr(checkpoints));
  std::filesystem::remove(checkpoints);

  EXPECT_EQ(shell(train("run")).status, 0);
  EXPECT_EQ(shell(sample).status, 0);
  for (const char* name : {"step-00000004.e1", "step-00000005.e1"})
    std::filesystem::resize_file(checkpoints + "/" + name + "/manifest.json", 100);
  ended = shell(sample);
  EXPECT_EQ(ended.status, 1);
  EXPECT_THAT(ended.output, HasSubstr("can be loaded; of the newest: checkpoint " + checkpoints +
                                      "/step-00000005.e1: malformed manifest"));
}

/// MPI keeps what is sent in memory of its own up to the eager limit; beyond it a send is a
/// rendezvous, which ends only with its receive. Here all activations and gradients are.
TEST_F(ByHand, PipelinesNeedNoMemoryOfMpiForWhatTheySend) {
  SmallRun pipelines;
  pipelines.replicas = {{.stages = {{1}, {2}, {1}}, .grains = 5},
                        {.stages = {{3}, {1}}, .grains = 3, .micro_batch_grains = 2}};
  pipelines.steps = 6;
  write_documents(pipelines);
  const Ended kept = shell(train("kept", 5));
  ASSERT_EQ(kept.status, 0) << kept.output;
  const Ended met =
      shell(train("met", 5,
                  "OMPI_MCA_btl_vader_eager_limit=256 OMPI_MCA_btl_tcp_eager_limit=256 "
                  "OMPI_MCA_btl_self_eager_limit=256"));
  ASSERT_EQ(met.status, 0) << met.output;
  EXPECT_EQ(losses("met"), losses("kept"));
  EXPECT_EQ(losses("met").size(), 6U);
}

TEST_F(ByHand, TheEvaluationAfterTheLastStepIsKept) {
  write_documents(8);
  auto job = nlohmann::json::parse(std::ifstream(path("job.json")));
  job["train"]["eval"]["every"] = 4;
  std::ofstream(path("job.json")) << job.dump();
  const Ended ended = shell(train("run"));
  ASSERT_EQ(ended.status, 0) << ended.output;
  std::ifstream file(path("run/metrics.jsonl"));
  std::vector<int> evaluated;
  for (std::string line; std::getline(file, line);) {
    const auto json = nlohmann::json::parse(line);
    if (json.contains("eval_loss")) evaluated.push_back(json.at("step"));
  }
  EXPECT_THAT(evaluated, ::testing::ElementsAre(4, 8));
}

TEST_F(ByHand, ALossThatIsNotFiniteEndsTheRunNamingTheStep) {
  write_documents(12);
  const Ended ended = shell(train("run", 3, "MOTLEY_FAILPOINT=nan_at_step_3:2"));
  EXPECT_EQ(ended.status, 1) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("not finite at step 3"));
}

TEST_F(ByHand, MistakesEndWithOneLineAndTheDocumentedStatus) {
  write_documents(12);
  const Ended two = shell(train("run", 2));
  EXPECT_EQ(two.status, 2) << two.output;
  EXPECT_THAT(two.output, HasSubstr("the plan is for 3 ranks, started were 2"));
  EXPECT_FALSE(std::filesystem::exists(path("run"))) << "written before it was refused";

  std::ofstream(path("text"), std::ios::trunc) << "";
  std::filesystem::remove(path("text"));
  const Ended no_data = shell(train("run"));
  EXPECT_EQ(no_data.status, 66) << no_data.output;
  EXPECT_THAT(no_data.output, HasSubstr(path("text")));
}

}  // namespace
}  // namespace motley::testing
