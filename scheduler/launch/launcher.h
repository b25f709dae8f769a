#pragma once
// How ranks are started: behind a seam. Implementations: mpirun (a real attempt), scripted (exits
// as told, for tests: tests/support/scripted_launcher.h); later slurm.
//
// launch() makes the calling process a child subreaper, so that nothing a rank starts can leave its
// reach: call it from a process with one launch at a time (the runner).

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "core/plan.h"
#include "core/result.h"

namespace motley {

struct LaunchRequest {
  std::vector<RankPlacement> ranks;      ///< in rank order
  std::vector<std::string> command;      ///< program and arguments, the same for all ranks
  std::vector<std::string> environment;  ///< NAME=value, passed to every rank
  /// Rank logs, written by each rank on its own host: <dir>/rank-0000.log; what the launching
  /// program itself says: <dir>/launch.log. Must exist on every host.
  std::string log_directory;
  /// This attempt's own temporary files and shared-memory segments, on every host; made and removed
  /// by the caller.
  std::string scratch_directory;
  std::string shared_memory_directory;
  std::string rsh_agent;  ///< program used instead of ssh; empty: ssh
};

/// A started set of ranks. Destroying it kills what is left of them.
class Launched {
 public:
  virtual ~Launched() = default;
  /// Readable when the launch has ended (a pidfd); for poll and Asio.
  virtual int exit_fd() const = 0;
  /// true: ended with status 0; false: still running; error: ended otherwise, naming status or
  /// signal, its code that of the exit status. Does not block.
  virtual Result<bool> finished() = 0;
  /// Ends every process of this launch, helpers with a session of their own included, and waits
  /// until they are gone (10 s at most).
  virtual void kill_all() = 0;
  /// What of it runs on this host now.
  virtual std::vector<pid_t> processes() const = 0;
};

class Launcher {
 public:
  virtual ~Launcher() = default;
  /// kBrokenInstall when the program to launch with, or the one to launch, is missing.
  virtual Result<std::unique_ptr<Launched>> launch(const LaunchRequest& request) = 0;
};

std::unique_ptr<Launcher> mpirun_launcher();

/// The hostfile of a plan, as users know them: "host slots=n" in order of first appearance, unequal
/// slots allowed. Ranks land in plan order when each host's ranks are neighbours.
std::string hostfile_text(const std::vector<RankPlacement>& ranks);

std::string rank_log_path(const std::string& log_directory, int rank);
std::string launch_log_path(const std::string& log_directory);

}  // namespace motley
