#include "planner/search_forms.h"

#include <algorithm>
#include <utility>

#include "core/units.h"
#include "planner/pipelines/pipeline_search.h"

namespace motley {
namespace {

/// Of the step; below it a cut is not worth what can be said less surely of it.
constexpr double kWorthCutting = 0.02;

void reject(std::string what, std::string why, double step_seconds, Plan* plan) {
  auto& rejected = plan->search.rejected;
  const auto place = std::find_if(rejected.begin(), rejected.end(), [&](const RejectedPlan& other) {
    return other.step_seconds == 0 || other.step_seconds > step_seconds;
  });
  rejected.insert(place, {std::move(what), std::move(why), step_seconds});
}

/// "2 replicas of 3 and 1 stages".
std::string shape_of(const Plan& plan) {
  std::string stages;
  for (size_t i = 0; i < plan.replicas.size(); ++i)
    stages += (i == 0                         ? ""
               : i + 1 < plan.replicas.size() ? ", "
                                              : " and ") +
              std::to_string(plan.replicas[i].stages.size());
  const size_t count = plan.replicas.size();
  return std::to_string(count) + (count == 1 ? " replica of " : " replicas of ") + stages +
         (stages == "1" ? " stage" : " stages");
}

bool is_cut(const Plan& plan) {
  return std::any_of(plan.replicas.begin(), plan.replicas.end(),
                     [](const ReplicaPlan& replica) {
                       return replica.stages.size() > 1 || replica.stages[0].ranks.size() > 1;
                     });
}

/// Of plans that compute nothing twice.
Result<Plan> search_whole_and_cut(const PlanRequest& request, const MemoryCounter& counter) {
  Result<Plan> plain = plan_search(request);
  // Planning again keeps the form that the search once chose, where that still fits.
  if (plain && request.previous != nullptr && !is_cut(*request.previous)) return plain;
  if (!plain && plain.error().code != ErrorCode::kNoPlan) return plain;
  if (plain) {
    MOTLEY_TRY(const double least, least_seconds_of_pipelines(request));
    if (least >= plain->prediction.step_seconds * (1 - kWorthCutting)) {
      plain->search.rejected.push_back({"pipelines", "none could be clearly quicker"});
      return plain;
    }
  }
  Result<Plan> cut = search_pipelines(request, counter);
  if (!cut && cut.error().code != ErrorCode::kNoPlan) return cut;
  if (!plain && !cut) {
    Error error = plain.error();
    error.message += "; " + cut.error().message;
    return fail(std::move(error));
  }
  if (!cut) return plain;
  if (!plain) return cut;
  const double quickest = plain->prediction.step_seconds, other = cut->prediction.step_seconds;
  const bool is_quicker = other < quickest * (1 - kWorthCutting);
  if (!is_quicker && !is_cut(*cut)) return plain;
  if (is_quicker) {  // whole replicas, too: what tables of memory keep out may fit as it is counted
    const int whole = plain->world_size();
    reject("data parallel over " + std::to_string(whole) +
               (whole == 1 ? " whole device" : " whole devices"),
           is_cut(*cut) ? "pipelines are quicker" : "more devices hold the model than was measured",
           quickest, &*cut);
    return cut;
  }
  reject("pipelines: " + shape_of(*cut),
         other < quickest ? "hardly quicker than whole replicas" : "no quicker", other, &*plain);
  return plain;
}

/// Whether blocks that are computed again could make a plan, or a clearly quicker one.
Result<bool> may_recomputing_help(const PlanRequest& request, const Result<Plan>& plan) {
  if (!request.job.parallel.recompute) return false;
  if (!plan) return plan.error().code == ErrorCode::kNoPlan;
  if (request.previous != nullptr) return false;
  MOTLEY_TRY(const double least, least_seconds_of_pipelines(request, Recompute::kBlock));
  return least > 0 && least < plan->prediction.step_seconds * (1 - kWorthCutting);
}

}  // namespace

Result<Plan> search_all_forms(const PlanRequest& request, const MemoryCounter& counter) {
  Result<Plan> plan = search_whole_and_cut(request, counter);
  MOTLEY_TRY(const bool may_help, may_recomputing_help(request, plan));
  if (!may_help) return plan;
  Result<Plan> again = search_recomputing(request, counter);
  if (!again) return again.error().code == ErrorCode::kNoPlan ? plan : again;
  if (!plan) return again;
  const double quickest = plan->prediction.step_seconds, other = again->prediction.step_seconds;
  if (other < quickest * (1 - kWorthCutting)) {
    reject("nothing computed twice", "blocks computed again leave room for a quicker plan",
           quickest, &*again);
    return again;
  }
  reject("blocks computed again", "no quicker", other, &*plan);
  return plan;
}

}  // namespace motley
