#pragma once
// The command line of Open MPI's mpirun (4.1). Every option is there for a measured reason, told
// beside it.

#include <string>
#include <vector>

#include "core/result.h"
#include "scheduler/launch/environment.h"
#include "scheduler/launch/launcher.h"

namespace motley {

/// The words that start these ranks, each with its output in its own log. Parameters of Open MPI's
/// that the user has set in `environment` (OMPI_MCA_...) are left to the user. Ranks of several
/// hosts are listed in a file it writes to the scratch directory: kIo where it cannot.
Result<std::vector<std::string>> mpirun_command(const std::string& mpirun,
                                                const Environment& environment,
                                                const LaunchRequest& request);

}  // namespace motley
