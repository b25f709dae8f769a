#pragma once
// Words that several commands take: a job with overrides, a plan for it.

#include <string>
#include <vector>

#include "core/plan.h"
#include "core/result.h"
#include "core/spec/fleet_spec.h"
#include "core/spec/job_spec.h"

namespace motley {

/// `overrides`: KEY=VALUE each, as given to --set.
Result<JobSpec> read_job_with(const std::string& path, const std::vector<std::string>& overrides);

/// A plan file; kInvalidSpec unless it is for this job's model and batch and names devices of this
/// fleet.
Result<Plan> read_plan_for(const std::string& path, const JobSpec& job, const FleetSpec& fleet);

}  // namespace motley
