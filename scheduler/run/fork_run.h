#pragma once

#include <cstdint>

#include "core/result.h"
#include "scheduler/run/run_directory.h"

namespace motley {

/// A new run of the same job that begins at an earlier run's checkpoint of `step`: its metrics up
/// to there and a copy of the checkpoint, durable and compared with its checksums. The earlier run
/// stays as it is; the new one is there when it is whole. kNotFound naming the steps there are,
/// kCorrupt naming the shard that is damaged.
Result<RunDirectory> fork_run(const RunDirectory& from, const JobSpec& job, int64_t step);

/// The newest one of that step. kNotFound naming the steps there are.
Result<CheckpointName> checkpoint_of_step(const RunDirectory& run, const JobSpec& job,
                                          int64_t step);

}  // namespace motley
