#pragma once
// Plans some of whose replicas the job pins. These are taken as given; what the job leaves open of
// them, micro-batch and grains, is found. What devices are left are planned by the search there is
// without pins, for each number of grains that may fall to them: all numbers where they are few,
// else by bisection, as more grains take the rest longer and the pinned replicas no longer. The
// plans so put together are priced by predict(), with their sums of gradients, and counted.

#include "core/result.h"
#include "planner/costs/layer_memory.h"
#include "planner/request.h"

namespace motley {

/// The quickest found of a job with pinned replicas. kNoPlan naming what of a pin cannot be had;
/// kInvalidSpec where a pinned device was not measured as pinned.
Result<Plan> search_pinned(const PlanRequest& request, const MemoryCounter& counter);

}  // namespace motley
