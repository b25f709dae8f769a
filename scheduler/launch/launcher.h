#pragma once
// How ranks are started: behind a seam. Implementations: mpirun (a real attempt), scripted (exits
// as told, for tests: tests/support/scripted_launcher.h); later slurm.
//
// launch() makes the calling process a child subreaper, so that nothing a rank starts can leave its
// reach: call it from a process with one launch at a time (the runner).

#include <sys/types.h>

#include <memory>
#include <optional>
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

/// How a rank ended.
struct RankExit {
  int rank = 0;
  ErrorCode code = ErrorCode::kRunFailed;  ///< that of its exit status
  std::string how;                         ///< "signal 9 (Killed)", "status 3"
};

/// How a launch ended.
struct LaunchEnd {
  /// None: with status 0. Otherwise names the status or signal; its code is that of the status.
  std::optional<Error> error;
  /// The rank that failed first, where the launching program knows: when it ends the others because
  /// of one, all connections close at once, in any order.
  std::optional<RankExit> first;
  bool crashed = false;  ///< the launching program itself was ended by a signal
};

/// A started set of ranks. Destroying it kills what is left of them.
class Launched {
 public:
  virtual ~Launched() = default;
  /// Readable when the launch has ended (a pidfd); for poll and Asio.
  virtual int exit_fd() const = 0;
  /// None: still running. Does not block.
  virtual std::optional<LaunchEnd> end() = 0;
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

}  // namespace motley
