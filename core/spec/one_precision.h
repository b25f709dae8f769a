#pragma once
// Devices that train together add up each other's numbers, and do so in one precision.

#include "core/result.h"
#include "core/spec/fleet_spec.h"
#include "core/spec/job_spec.h"

namespace motley {

/// kInvalidSpec, at its place in the fleet's file, naming a device that does not compute in the
/// precision the job asks for, or two of which one, driven for this job, computes in fp64 and the
/// other does not.
Result<Unit> check_one_precision(const FleetSpec& fleet, const JobSpec& job);

}  // namespace motley
