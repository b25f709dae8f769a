#pragma once
// The planner, with memory counted by `motley-worker estimate`.

#include "core/plan.h"
#include "core/result.h"
#include "planner/request.h"

namespace motley {

/// planner/search_forms.h. What the worker fails with.
Result<Plan> find_plan(const PlanRequest& request);

}  // namespace motley
