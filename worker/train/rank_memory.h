#pragma once
// All that a rank of a plan holds of memory that grows with the model (core/rank_memory.h).

#include "core/device_islands.h"
#include "core/plan.h"
#include "core/spec/fleet_spec.h"
#include "core/spec/job_spec.h"
#include "worker/engine/engine.h"

namespace motley {

/// What `rank` of a valid plan will count on its account where NCCL connects these islands of its
/// group's part (core/sync_groups.h), without allocating or any hardware.
MemoryEstimate estimate_rank(const JobSpec& job, const Plan& plan, Rank rank,
                             const DeviceTraits& device, const DeviceIslands& islands = {});

/// Of a device driven for the job.
DeviceTraits traits_driven(const JobSpec& job, const DeviceSpec& device, Precision planned);

}  // namespace motley
