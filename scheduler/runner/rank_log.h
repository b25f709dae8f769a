#pragma once
// What a failed attempt's logs add to its error.

#include <string>
#include <vector>

#include "core/plan.h"
#include "scheduler/runner/runner_fsm.h"

namespace motley {

/// The end's error with the last line its rank wrote, unless that tells of nothing wrong (or, where
/// no rank is to blame and nobody said why, the first that mpirun wrote), and where to read more.
/// Logs of other hosts are named, not read.
Error with_log(const AttemptEnd& end, const std::vector<RankPlacement>& ranks,
               const std::string& log_directory);

}  // namespace motley
