#pragma once

#include <cstdint>

#include "core/result.h"
#include "scheduler/run/run_directory.h"

namespace motley {

/// A new run of the same job that begins at an earlier run's checkpoint of `step`: its metrics up
/// to there and a copy of the checkpoint. The earlier run stays as it is. kNotFound naming the
/// steps there are.
Result<RunDirectory> fork_run(const RunDirectory& from, const JobSpec& job, int64_t step);

}  // namespace motley
