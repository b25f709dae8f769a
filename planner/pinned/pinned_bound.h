#pragma once
// What no plan with pinned replicas can be quicker than.

#include <vector>

#include "core/result.h"
#include "planner/pinned/pinned_replica.h"
#include "planner/request.h"

namespace motley {

/// Seconds of a step, whatever the rest of the fleet does: the bound there is without pins, where
/// it also holds of what the job pins. 0 where too little was measured to tell, where devices share
/// a stage (of parts of layers nothing is known by the curves of whole ones), or where a pinned
/// micro-batch lies beyond what was measured.
Result<double> least_seconds_beside(const PlanRequest& request, const std::vector<PricedPin>& pins);

}  // namespace motley
