#pragma once
// `motley run` of a job that is a program: as many attempts as it takes.

#include "core/result.h"
#include "scheduler/run/run_job.h"

namespace motley {

/// As run_job().
Result<int> run_program(RunOptions options);

/// The step of the run's newest checkpoint; 0: none. Of a program a number that rises when it
/// leaves something new in its checkpoint directory.
int64_t saved_step(const RunDirectory& run, const JobSpec& job);

}  // namespace motley
