#include "scheduler/launch/mpirun_command.h"

#include <algorithm>
#include <fstream>
#include <initializer_list>
#include <utility>

#include "scheduler/launch/this_host.h"

namespace motley {
namespace {

/// Runs a rank with its output in its own log on its own host: nothing is forwarded, and the log is
/// whole even when mpirun is killed. $0 is the log directory, $1 that of shared memory (which a
/// host may forget between two logins), the rest the command. Within $1 each daemon of mpirun has a
/// place of its own, unless the user has chosen one: files are named by host and number, and two
/// nodes of the job service may be one machine.
constexpr const char* kRankShell =
    "mkdir -p -m 700 \"$0\" \"$1\" \"$1/$PPID\"; "
    "export OMPI_MCA_btl_vader_backing_directory="
    "\"${OMPI_MCA_btl_vader_backing_directory:-$1/$PPID}\"; shift; "
    "log=$(printf '%s/rank-%04d.log' \"$0\" \"$OMPI_COMM_WORLD_RANK\"); exec \"$@\" >>\"$log\" "
    "2>&1";

class MpirunCommand {
 public:
  MpirunCommand(std::string program, const Environment& environment)
      : environment_(environment), words_{std::move(program)} {}

  MpirunCommand& add(std::initializer_list<std::string> words) {
    words_.insert(words_.end(), words);
    return *this;
  }
  /// A parameter of Open MPI's, unless the user has chosen it in the environment.
  MpirunCommand& mca(const std::string& name, const std::string& value) {
    return environment_.has("OMPI_MCA_" + name) ? *this : add({"--mca", name, value});
  }
  const std::vector<std::string>& words() const { return words_; }

 private:
  const Environment& environment_;
  std::vector<std::string> words_;
};

bool only_this_host(const std::vector<RankPlacement>& ranks) {
  return std::all_of(ranks.begin(), ranks.end(),
                     [](const RankPlacement& rank) { return is_this_host(rank.host); });
}

/// One line a rank, in rank order, for the sequential mapper: ranks land where the plan says also
/// when hosts interleave. Our own host goes by its own name: that is the one mpirun knows it by.
Result<std::string> write_sequence(const LaunchRequest& request) {
  const std::string path = request.scratch_directory + "/hosts";
  std::ofstream file(path, std::ios::trunc);
  for (const RankPlacement& rank : request.ranks)
    file << (is_this_host(rank.host) ? own_host_name() : rank.host) << "\n";
  file.close();
  if (!file) return fail(ErrorCode::kIo, "cannot write " + path);
  return path;
}

void add_behaviour(MpirunCommand* command, const LaunchRequest& request) {
  command
      ->add({"--bind-to", "none"})            // else concurrent jobs all get core 0
      .mca("odls_base_sigkill_timeout", "0")  // a killed rank is noticed in 34 ms, not 1 s
      .mca("oob_tcp_keepalive_time", "2")     // a vanished node in 6 s, not 492 s
      .mca("oob_tcp_keepalive_intvl", "1")
      .mca("oob_tcp_keepalive_probes", "3")
      .mca("mpi_yield_when_idle", "1")  // ranks share cores: 0.09 ms, not 90, a reduction
      .mca("btl_vader_single_copy_mechanism", "none")  // not allowed in many containers
      .mca("orte_tmpdir_base", request.scratch_directory);
}

Result<Unit> add_placement(MpirunCommand* command, const LaunchRequest& request) {
  const std::string count = std::to_string(request.ranks.size());
  command->add({"-n", count});
  if (only_this_host(request.ranks)) {
    command->add({"--host", "localhost:" + count});
    return Unit{};
  }
  MOTLEY_TRY(const std::string hosts, write_sequence(request));
  command->add({"--mca", "rmaps", "seq", "--hostfile", hosts});
  command->add({"--mca", "plm_rsh_no_tree_spawn", "1"});  // only we need to reach the others
  if (!request.rsh_agent.empty()) command->add({"--mca", "plm_rsh_agent", request.rsh_agent});
  return Unit{};
}

}  // namespace

Result<std::vector<std::string>> mpirun_command(const std::string& mpirun,
                                                const Environment& environment,
                                                const LaunchRequest& request) {
  MpirunCommand command(mpirun, environment);
  add_behaviour(&command, request);
  MOTLEY_TRY_VOID(add_placement(&command, request));
  for (const std::string& variable : request.environment) command.add({"-x", variable});
  command.add(
      {"/bin/sh", "-c", kRankShell, request.log_directory, request.shared_memory_directory});
  std::vector<std::string> words = command.words();
  words.insert(words.end(), request.command.begin(), request.command.end());
  return words;
}

}  // namespace motley
