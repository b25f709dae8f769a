#include "planner/plain/search.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "planner/costs/links.h"
#include "planner/costs/plain_memory.h"
#include "planner/costs/sums_beside.h"
#include "planner/plain/candidates.h"
#include "planner/plain/grain_search.h"
#include "planner/plain/grains.h"
#include "planner/plain/plan_again.h"
#include "planner/plain/runners_up.h"

namespace motley {
namespace {

bool improves(const Deal& deal, const Deal& best) {
  if (deal.step_seconds != best.step_seconds) return deal.step_seconds < best.step_seconds;
  return deal.devices() <= best.devices();  // grains rise: at a tie the larger one
}

std::string space_of(const std::vector<GrainResult>& tried, size_t candidates) {
  return "data parallel: any of " + std::to_string(candidates) +
         " devices, any whole grains each, any micro-batch that fits; grain " + grains_tried(tried);
}

FoundDeal search_all_grains(const PlanRequest& request, const Candidates& candidates,
                            const ReductionTable& reduction) {
  FoundDeal found;
  double lower_bound = kNever;
  for (const int grain : candidate_grains(request, candidates)) {
    auto search = std::make_unique<GrainSearch>(request, candidates, reduction, grain);
    DealResult result = search->run(found.deal.step_seconds);
    found.record.nodes += result.nodes;
    lower_bound = std::min(lower_bound, result.lower_bound);
    found.tried.push_back({grain, result.deal.step_seconds});
    if (result.deal.step_seconds == kNever || !improves(result.deal, found.deal)) continue;
    found.deal = std::move(result.deal);
    found.search = std::move(search);
  }
  found.record.step_seconds = found.deal.step_seconds;
  found.record.lower_bound_step_seconds = lower_bound;
  found.record.space = space_of(found.tried, candidates.devices.size());
  return found;
}

/// Memory tables are taken for all that a rank needs.
Result<Plan> search_within_tables(const PlanRequest& request) {
  MOTLEY_TRY(const Candidates candidates, find_candidates(request));
  const ReductionTable reduction(
      ReductionModel(request.profile, gradient_bytes(request.job),
                     shortened_links(compression_wanted(request.job), request.job.model),
                     sync_wanted(request)),
      candidates.devices);
  std::optional<FoundDeal> again = deal_again(request, candidates, reduction);
  const bool searched = !again;
  FoundDeal found =
      searched ? search_all_grains(request, candidates, reduction) : *std::move(again);
  if (!found.search) {
    return fail(too_few_grains(request.job, candidates.least_devices));
  }
  const Deal& best = found.deal;
  MOTLEY_TRY(Plan plan, assemble(request, candidates,
                                 {found.search->cut().grain, best.grains, best.short_device}));
  const bool finer_tried = searched && found.tried.front().grain < found.search->cut().grain;
  for (LeftOut& left : reasons_left_out(candidates, *found.search, best, finer_tried)) {
    plan.left_out.push_back(std::move(left));
  }
  plan.search = std::move(found.record);
  plan.search.step_seconds = plan.prediction.step_seconds;
  plan.search.lower_bound_step_seconds =
      std::min(plan.search.lower_bound_step_seconds, plan.search.step_seconds);
  if (searched)
    plan.search.rejected = runners_up(request, candidates, reduction, found.tried, plan);
  MOTLEY_TRY_VOID(validate(plan, request.job.model));
  return plan;
}

/// Plans were searched for as if none of them summed beside computing, as those of some devices do.
Result<Unit> consider_those_beside(const PlanRequest& request, Plan* plan) {
  const FleetSpec some = devices_with_sums_beside(request);
  const Result<Plan> other = best_over_ranks(asked_of(request, some), search_within_tables);
  if (!other && other.error().code != ErrorCode::kNoPlan &&
      other.error().code != ErrorCode::kNoDevice)
    return fail(other.error());
  if (!other) return Unit{};
  const double bound =
      std::min(plan->search.lower_bound_step_seconds, other->search.lower_bound_step_seconds);
  if (other->prediction.step_seconds < plan->prediction.step_seconds) {
    std::vector<LeftOut> left_out = other->left_out;
    for (const LeftOut& left : plan->left_out)
      if (some.find(left.device) == nullptr) left_out.push_back(left);
    for (const RankPlacement& rank : plan->ranks)
      if (some.find(rank.device) == nullptr) left_out.push_back({rank.device, "slower with it"});
    *plan = *other;
    plan->left_out = std::move(left_out);
  }
  plan->search.lower_bound_step_seconds = std::min(bound, plan->search.step_seconds);
  plan->id = plan_id(*plan);
  return Unit{};
}

}  // namespace

Result<Plan> plan_search(const PlanRequest& request) {
  const int stages = request.job.parallel.pipeline.value_or(1);
  if (stages > 1)
    return fail(ErrorCode::kNoPlan,
                "parallel.pipeline asks for " + std::to_string(stages) +
                    " stages in each replica; a whole device is one",
                place_of(request.job, "parallel.pipeline"));
  const int sharing = request.job.parallel.tensor.value_or(1);
  if (sharing > 1)
    return fail(ErrorCode::kNoPlan,
                "parallel.tensor asks for " + std::to_string(sharing) +
                    " devices in each stage; a whole device is one",
                place_of(request.job, "parallel.tensor"));
  MOTLEY_TRY(Plan plan, best_over_ranks(request, search_within_tables));
  if (plans_with_sums_beside(request) == PlansBeside::kOfSome)
    MOTLEY_TRY_VOID(consider_those_beside(request, &plan));
  return plan;
}

}  // namespace motley
