// What is said to mpirun, word for word.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "scheduler/launch/environment.h"
#include "scheduler/launch/launcher.h"
#include "scheduler/launch/mpirun_command.h"
#include "scheduler/launch/remote_hosts.h"
#include "scheduler/launch/this_host.h"
#include "scheduler/launch/worker_program.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_directory.h"

namespace motley {
namespace {

using ::testing::ElementsAre;
using testing::expect_golden;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
  return text;
}

/// A service that is updated while it runs starts its attempts all the same.
TEST(OwnProgram, IsFoundAfterItWasReplaced) {
  testing::TemporaryDirectory directory;
  const std::string program = directory.path() + "/motley";
  EXPECT_EQ(program_of_link(program), program);
  EXPECT_EQ(program_of_link(program + " (deleted)"), program);
  std::ofstream(program + " (deleted)") << "a file may have such a name";
  EXPECT_EQ(program_of_link(program + " (deleted)"), program + " (deleted)");
}

class MpirunCommandText : public ::testing::Test {
 protected:
  LaunchRequest request(const std::vector<std::string>& hosts) const {
    LaunchRequest request;
    for (size_t rank = 0; rank < hosts.size(); ++rank)
      request.ranks.push_back({hosts[rank] + "/" + std::to_string(rank), hosts[rank], "card"});
    request.command = {"/opt/motley/bin/motley-worker", "train", "--attempt",
                       "/runs/a job/attempt.json"};
    request.environment = {"MOTLEY_VERBOSE=1", "CUDA_DEVICE_ORDER=PCI_BUS_ID"};
    request.log_directory = "/runs/a job";
    request.scratch_directory = scratch_.path();
    request.shared_memory_directory = "/dev/shm/motley/1";
    return request;
  }

  /// A word a line.
  std::string text(const LaunchRequest& request, const Environment& environment = {}) const {
    const auto words = mpirun_command("/usr/bin/mpirun.openmpi", environment, request);
    if (!words) return words.error().to_string();
    std::string lines;
    for (const std::string& word : *words) lines += word + "\n";
    return replaced(lines, scratch_.path(), "SCRATCH");
  }

  std::string sequence() const {
    std::ostringstream hosts;
    hosts << std::ifstream(scratch_.path() + "/hosts").rdbuf();
    return hosts.str();
  }

  testing::TemporaryDirectory scratch_;
};

TEST_F(MpirunCommandText, OnThisHostAlone) {
  expect_golden("launch/this_host.txt", text(request({"localhost", own_host_name()})));
  EXPECT_FALSE(std::filesystem::exists(scratch_.path() + "/hosts"));
}

TEST_F(MpirunCommandText, OnSeveralHosts) {
  expect_golden("launch/several_hosts.txt",
                text(request({"a1.invalid", "localhost", "a1.invalid", "r1.invalid"})));
  EXPECT_EQ(sequence(), "a1.invalid\n" + own_host_name() + "\na1.invalid\nr1.invalid\n")
      << "one line a rank, in rank order";
}

TEST_F(MpirunCommandText, ThroughAnotherRemoteShell) {
  LaunchRequest through = request({"a1.invalid"});
  through.rsh_agent = "/opt/agent";
  EXPECT_THAT(text(through), HasSubstr("--mca\nplm_rsh_agent\n/opt/agent\n"));
}

TEST_F(MpirunCommandText, LeavesToTheUserWhatTheUserHasSet) {
  Environment environment;
  environment.set("OMPI_MCA_odls_base_sigkill_timeout", "5");
  const std::string words = text(request({"localhost"}), environment);
  EXPECT_EQ(words.find("odls_base_sigkill_timeout"), std::string::npos) << words;
  EXPECT_THAT(words, HasSubstr("mpi_yield_when_idle"));
}

TEST_F(MpirunCommandText, SaysWhereItCannotWrite) {
  LaunchRequest nowhere = request({"a1.invalid"});
  nowhere.scratch_directory = "/nowhere";
  EXPECT_EQ(text(nowhere), "cannot write /nowhere/hosts");
}

TEST(HostfileText, CountsSlotsInTheOrderOfFirstAppearance) {
  EXPECT_EQ(hostfile_text({{"a/0", "a", "x"}, {"b/0", "b", "x"}, {"a/1", "a", "x"}}),
            "a slots=2\nb slots=1\n");
  EXPECT_EQ(hostfile_text({}), "");
}

TEST(EnvironmentForRanks, PassesOnOurOwnVariablesAndNoOthers) {
  Environment ours;
  ours.set("MOTLEY_FAILPOINT", "kill_at_step_7:2");
  ours.set("MOTLEY_VERBOSE", "a b");
  ours.set("PATH", "/bin");
  ours.set("XMOTLEY_NOT", "1");
  EXPECT_THAT(environment_for_ranks(ours),
              UnorderedElementsAre("MOTLEY_FAILPOINT=kill_at_step_7:2", "MOTLEY_VERBOSE=a b",
                                   "CUDA_DEVICE_ORDER=PCI_BUS_ID"));
}

TEST(EnvironmentForRanks, LeavesTheOrderOfDevicesToTheUser) {
  Environment ours;
  ours.set("CUDA_DEVICE_ORDER", "FASTEST_FIRST");
  EXPECT_THAT(environment_for_ranks(ours), ElementsAre("CUDA_DEVICE_ORDER=FASTEST_FIRST"));
}

TEST(ShellCommand, QuotesWhatAShellWouldTakeApart) {
  EXPECT_EQ(shell_command({"motley", "run", "my job.yaml", "--set", "train.steps=20", "it's", ""}),
            "motley run 'my job.yaml' --set train.steps=20 'it'\\''s' ''");
}

TEST(LastWordsOfWorker, AreToldWithoutItsName) {
  EXPECT_EQ(last_words_of_worker("a\nmotley-worker: no checkpoint\n\n"), "no checkpoint");
  EXPECT_EQ(last_words_of_worker("Killed\n"), "Killed");
  EXPECT_EQ(last_words_of_worker(""), "");
}

class WorkerProgram : public ::testing::Test {
 protected:
  std::string program(const std::string& name, bool executable = true) const {
    const std::string path = directory_.path() + "/" + name;
    std::ofstream(path) << "#!/bin/sh\n";
    using std::filesystem::perms;
    std::filesystem::permissions(path, executable ? perms::owner_all : perms::owner_read);
    return path;
  }

  testing::TemporaryDirectory directory_;
};

TEST_F(WorkerProgram, LiesBesideOurs) {
  const std::string worker = program("motley-worker");
  EXPECT_EQ(*worker_program_beside(directory_.path() + "/motley", ""), worker);
}

TEST_F(WorkerProgram, IsTheOneThatWasChosen) {
  program("motley-worker");
  const std::string chosen = program("another");
  EXPECT_EQ(*worker_program_beside(directory_.path() + "/motley", chosen), chosen);
}

TEST_F(WorkerProgram, IsMissedWithItsPathAndTheRemedy) {
  for (const std::string& chosen : {std::string(), directory_.path() + "/motley-worker"}) {
    const auto worker = worker_program_beside(directory_.path() + "/motley", chosen);
    ASSERT_FALSE(worker);
    EXPECT_EQ(worker.error().code, ErrorCode::kBrokenInstall);
    EXPECT_EQ(worker.error().message,
              "no worker program at " + directory_.path() +
                  "/motley-worker; install motley-worker beside motley, or set MOTLEY_WORKER");
  }
}

}  // namespace
}  // namespace motley
