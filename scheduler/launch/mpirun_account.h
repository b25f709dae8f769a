#pragma once
// What Open MPI's mpirun says of the rank that made it end a job.

#include <optional>
#include <string>

#include "scheduler/launch/launcher.h"

namespace motley {

/// The rank that mpirun's output names as the first to fail, by a signal, with a status, or by
/// leaving without MPI_Finalize; none where it names none. mpirun (4.1.4) names one whenever all
/// ranks have started MPI; of a rank that fails while others are still being started it may say
/// nothing.
std::optional<RankExit> first_failure_in(const std::string& mpirun_output);

}  // namespace motley
