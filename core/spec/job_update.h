#pragma once
// Other values for a job that the service has.

#include <string_view>
#include <vector>

#include "core/result.h"
#include "core/spec/job_spec.h"
#include "core/spec/reader.h"

namespace motley {

/// The job with these changes; `labels` and `resources.devices` as a whole replace what was there,
/// `any_of` what the job said of its devices (`~`: no alternatives any more). kInvalidSpec for a
/// value that a job file could not have, and for a key that cannot be changed once it is submitted.
Result<JobSpec> updated_job(const JobSpec& job, const std::vector<Override>& changes);

/// Whether it decides on what, and when, an attempt starts: not to be changed under one.
bool concerns_start(std::string_view key);

}  // namespace motley
