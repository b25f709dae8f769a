#include <algorithm>

#include "planner/candidates.h"
#include "planner/grain_table.h"
#include "planner/plain_memory.h"
#include "planner/search.h"

namespace motley {

Result<Plan> equal_split_within_tables(const PlanRequest& request) {
  MOTLEY_TRY(const Candidates candidates, find_candidates(request));
  Choice choice;
  choice.grain = request.job.train.grain.value_or(1);
  const int grains = StepCut{request.job.train.global_batch, choice.grain}.grains();
  const int devices = std::min(candidates.most_devices, grains);
  choice.grains.assign(candidates.devices.size(), 0);
  for (int i = 0; i < devices; ++i) {
    choice.grains[static_cast<size_t>(i)] = grains / devices + (i < grains % devices ? 1 : 0);
  }
  if (StepCut{request.job.train.global_batch, choice.grain}.missing() > 0) {
    choice.short_device = devices - 1;
  }
  MOTLEY_TRY(Plan plan, assemble(request, candidates, choice));
  plan.search.space = "equal split: no search";
  plan.search.step_seconds = plan.prediction.step_seconds;
  plan.id = plan_id(plan);
  return plan;
}

Result<Plan> plan_equal_split(const PlanRequest& request) {
  return best_over_ranks(request, equal_split_within_tables);
}

}  // namespace motley
