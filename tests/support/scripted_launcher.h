#pragma once
// A launcher without MPI: ranks are plain processes of this machine, or only end as told.

#include <memory>
#include <vector>

#include "core/ids.h"
#include "scheduler/launch/launcher.h"

namespace motley::testing {

/// Instead of running the command, this rank waits and ends.
struct ScriptedExit {
  int rank = 0;
  Nanos after{0};
  int status = 0;
  int signal = 0;  ///< not 0: it ends itself with this signal
};

/// Ranks without a script run the command with OMPI_COMM_WORLD_RANK and _SIZE set and their log as
/// output. As with mpirun the first that fails ends all, and its status is the launch's.
std::unique_ptr<Launcher> scripted_launcher(std::vector<ScriptedExit> exits = {});

}  // namespace motley::testing
