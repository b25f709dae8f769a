#pragma once
// Putting a plan together from parts that were planned apart.

#include <vector>

#include "core/plan.h"
#include "core/spec/fleet_spec.h"

namespace motley {

/// A replica whose ranks are numbered as in `ranks`; they become the next ones of the plan.
void append_replica(ReplicaPlan replica, const std::vector<RankPlacement>& ranks, Plan* plan);

/// Numbers the ranks in the order of the fleet, which lists each host's devices together.
void number_as_in(const FleetSpec& fleet, Plan* plan);

}  // namespace motley
