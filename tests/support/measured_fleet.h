#pragma once

#include "core/profile.h"
#include "core/spec/fleet_spec.h"
#include "core/spec/job_spec.h"

namespace motley::testing {

/// What the profiler measures of all devices of a fleet, each with a memory limit, as threads of
/// this process: rank 0's profile. A failure is the test's.
Profile measured_by_threads(const JobSpec& job, const FleetSpec& fleet);

}  // namespace motley::testing
