#pragma once
// Plans whose replicas are all alike: of the same devices, in the same order, cut alike. Packings
// are of what computes soonest alone; what replicas exchange is least where each layer, and both
// ends of all replicas, lie on the same hosts.

#include <cstdint>
#include <vector>

#include "planner/pipelines/pipeline_space.h"
#include "planner/plain/search.h"

namespace motley {

/// Those that are quicker than `below` and whose counted bytes fit, the quickest first, one for
/// each number of replicas: for each set of devices and pair of groups at the ends the row of
/// stages that computes soonest between them is priced by predict(). Adds what was searched to
/// `nodes`. Errors of `count`.
Result<std::vector<Plan>> search_even_replicas(const PipelineSpace& space, const CountMemory& count,
                                               const PipelineCosts& costs, double below,
                                               int64_t* nodes);

}  // namespace motley
