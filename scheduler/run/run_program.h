#pragma once
// `motley run` of a job that is a program: as many attempts as it takes.

#include "core/result.h"
#include "scheduler/run/run_job.h"

namespace motley {

/// As run_job().
Result<int> run_program(RunOptions options);

/// A number that rises when a program of this run leaves something new in its checkpoint
/// directory; 0: nothing there yet.
int64_t program_progress(const RunDirectory& run, const JobSpec& job);

}  // namespace motley
