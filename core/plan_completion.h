#pragma once
// What a person may leave out of a plan.

#include "core/plan.h"
#include "core/result.h"
#include "core/spec/fleet_spec.h"
#include "core/spec/job_spec.h"

namespace motley {

/// Fills in what a plan written by hand lacks: hosts and types from the fleet, equal shares, the
/// precision its devices compute in, the job's key, even owners. Afterwards the plan is valid for
/// this job and fleet and has its id. kInvalidSpec with the JSON pointer of the fault and the
/// reason. A prediction is not made up.
Result<Unit> complete(const JobSpec& job, const FleetSpec& fleet, Plan* plan);

}  // namespace motley
