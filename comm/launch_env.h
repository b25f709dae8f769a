#pragma once
// What the launcher told this process, in the variables users' launchers set (Open MPI, PMIx,
// Slurm; CONVENTIONS.md).

#include <optional>

namespace motley {

struct LaunchEnv {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 0;  ///< ranks of this host; 0 where the launcher does not tell
};

/// Nothing when this process was not started by mpirun or srun.
std::optional<LaunchEnv> launch_env();

}  // namespace motley
