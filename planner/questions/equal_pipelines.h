#pragma once
// The equal split of a model that no device holds alone (planner/plain/search.h).

#include "planner/plain/search.h"

namespace motley {

/// The admitted devices in fleet order, in as many pipelines as they make: of the fewest stages for
/// which any fits, each with as many blocks as the others; all with the same number of samples, in
/// the quickest micro-batch that fits. kNoPlan where none fits; what `count` fails with.
Result<Plan> plan_equal_pipelines(const PlanRequest& request, const CountMemory& count);

}  // namespace motley
