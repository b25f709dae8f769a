#pragma once
// The plan of a job that is a program, for whoever wants to know who does what: its model is one
// layer to us, and each rank a replica.

#include <vector>

#include "core/plan.h"
#include "core/profile.h"
#include "core/spec/fleet_spec.h"
#include "core/spec/job_spec.h"
#include "planner/plain/program_deal.h"

namespace motley {

/// `shares` by device of `fleet`, a rank each; none where the job has no global batch. `profiles`
/// by device, too: each with a curve "model", or none at all and nothing is predicted. The
/// prediction is of computing and updating alone.
Plan program_plan(const JobSpec& job, const FleetSpec& fleet, const std::vector<RankShare>& shares,
                  const std::vector<DeviceProfile>& profiles);

}  // namespace motley
