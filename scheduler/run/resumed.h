#pragma once

#include <string>

#include "core/result.h"
#include "core/spec/job_spec.h"
#include "scheduler/run/run_directory.h"

namespace motley {

struct Resumed {
  RunDirectory run;
  JobSpec job;  ///< as its file says now, or as the run was started
};

/// What `motley resume` is to continue: a run by name, "name/n" or path, or the newest run of a job
/// file. Not locked. kNotFound when there is no such run; kInvalidSpec naming the key where the
/// file is of another model, data or train than the run.
Result<Resumed> find_resumed(const std::string& run_or_job);

}  // namespace motley
