#pragma once
// Words that several commands take: a job with overrides.

#include <string>
#include <vector>

#include "core/result.h"
#include "core/spec/job_spec.h"
#include "core/spec/reader.h"

namespace motley {

/// KEY=VALUE each, as given to --set.
Result<std::vector<Override>> parse_overrides(const std::vector<std::string>& overrides);

/// The job that runs a Python script with these arguments from where we are, named after it.
Result<JobSpec> job_of_script(const std::string& script, const std::vector<std::string>& arguments,
                              const std::vector<std::string>& overrides);

/// `overrides`: KEY=VALUE each, as given to --set.
Result<JobSpec> read_job_with(const std::string& path, const std::vector<std::string>& overrides,
                              JobParts parts = JobParts::kAll);

}  // namespace motley
