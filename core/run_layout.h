#pragma once
// Where the parts of a run lie (core/FORMATS.md, "run directory"): scheduler and worker agree here.

#include <string>

#include "core/ids.h"
#include "core/spec/job_spec.h"

namespace motley {

/// "<run>/checkpoints", or "<checkpoint.dir>/<last two parts of run>" where the job chose a place:
/// runs never share one.
std::string checkpoints_directory(const std::string& run_dir, const CheckpointSpec& checkpoint);

/// "<run>/attempts/<epoch>"
std::string attempt_directory(const std::string& run_dir, Epoch epoch);

/// "<attempt>/trace-rank-0003.json"
std::string trace_path(const std::string& attempt_directory, Rank rank);

}  // namespace motley
