#include <algorithm>

#include "planner/costs/plain_memory.h"
#include "planner/plain/candidates.h"
#include "planner/plain/grain_table.h"
#include "planner/plain/search.h"
#include "planner/questions/equal_pipelines.h"

namespace motley {
namespace {

Result<Plan> equal_replicas(const PlanRequest& request, const Candidates& candidates) {
  Choice choice;
  choice.grain = request.job.train.grain.value_or(1);
  const int grains = StepCut{request.job.train.global_batch, choice.grain}.grains();
  const int devices = std::min(candidates.most_devices, grains);
  if (devices < candidates.least_devices)
    return fail(too_few_grains(request.job, candidates.least_devices));
  choice.grains.assign(candidates.devices.size(), 0);
  for (int i = 0; i < devices; ++i) {
    choice.grains[static_cast<size_t>(i)] = grains / devices + (i < grains % devices ? 1 : 0);
  }
  if (StepCut{request.job.train.global_batch, choice.grain}.missing() > 0) {
    choice.short_device = devices - 1;
  }
  return assemble(request, candidates, choice);
}

Result<Plan> recorded(Result<Plan> plan, const char* form) {
  if (!plan) return plan;
  plan->search.space = std::string("equal split: ") + form;
  plan->search.step_seconds = plan->prediction.step_seconds;
  return plan;
}

}  // namespace

Result<Plan> equal_split_within_tables(const PlanRequest& request) {
  MOTLEY_TRY(const Candidates candidates, find_candidates(request));
  return recorded(equal_replicas(request, candidates), kEqualReplicas);
}

Result<Plan> plan_equal_split(const PlanRequest& request, const CountMemory& count) {
  auto replicas = best_over_ranks(request, equal_split_within_tables);
  if (replicas || replicas.error().code != ErrorCode::kNoPlan || !count) return replicas;
  auto plan = plan_equal_pipelines(request, count);
  if (plan || plan.error().code != ErrorCode::kNoPlan) {
    plan = recorded(std::move(plan), kEqualPipelines);
    if (plan) plan->id = plan_id(*plan);
    return plan;
  }
  Error error = std::move(replicas).error();
  error.message += "; " + plan.error().message;
  return fail(std::move(error));
}

std::string equal_split_form(const Plan& plan) {
  const bool cut = plan.replicas.front().stages.size() > 1;
  return cut ? kEqualPipelines : kEqualReplicas;
}

}  // namespace motley
