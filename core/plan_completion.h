#pragma once
// What a person may leave out of a plan.

#include <string>

#include "core/plan.h"
#include "core/result.h"
#include "core/spec/fleet_spec.h"
#include "core/spec/job_spec.h"

namespace motley {

/// Fills in what a plan written by hand lacks: hosts and types from the fleet, equal shares, the
/// precision its devices compute in, the job's compression, its key, even owners. Afterwards the
/// plan is valid for this job and fleet and has its id. kInvalidSpec with the JSON pointer of the
/// fault and the reason. A prediction is not made up.
Result<Unit> complete(const JobSpec& job, const FleetSpec& fleet, Plan* plan);

/// kInvalidSpec when a rank's host is left out, with its JSON pointer and how to complete `path`,
/// the file of the plan.
Result<Unit> check_hosts_named(const Plan& plan, const std::string& path);

/// "this plan is not whole; `motley plan JOB --score PLAN -o WHOLE` completes it"
std::string how_to_complete(const std::string& path);

}  // namespace motley
