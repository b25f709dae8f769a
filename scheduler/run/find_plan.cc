#include "scheduler/run/find_plan.h"

#include "planner/search_forms.h"
#include "scheduler/run/count_memory.h"

namespace motley {

Result<Plan> find_plan(const PlanRequest& request) {
  return search_all_forms(request, memory_counter(request));
}

}  // namespace motley
