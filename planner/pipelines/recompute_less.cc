#include "planner/pipelines/recompute_less.h"

#include <algorithm>
#include <utility>

#include "planner/costs/cost_model.h"

namespace motley {
namespace {

/// How many of a stage's blocks compute again, by halving: stages do not take each other's memory.
struct Halving {
  StagePlan* stage;
  std::vector<Recompute> all;  ///< as it was found, which fits
  int low = 0;                 ///< the fewest that may fit
  int high = 0;                ///< fit

  bool done() const { return low == high; }
  int next() const { return low + (high - low) / 2; }
  /// Only the first so many.
  void set(int again) {
    stage->recompute = all;
    for (Recompute& part : stage->recompute)
      if (part != Recompute::kNone && again-- <= 0) part = Recompute::kNone;
  }
};

std::vector<Halving> halvings_of(Plan* plan) {
  std::vector<Halving> stages;
  for (ReplicaPlan& replica : plan->replicas)
    for (StagePlan& stage : replica.stages) {
      const auto none =
          std::count(stage.recompute.begin(), stage.recompute.end(), Recompute::kNone);
      stages.push_back(
          {&stage, stage.recompute, 0, static_cast<int>(std::ssize(stage.recompute) - none)});
    }
  return stages;
}

bool fits(const PlanRequest& request, const Plan& plan, const StagePlan& stage,
          const std::vector<RankMemory>& counted) {
  return std::all_of(stage.ranks.begin(), stage.ranks.end(), [&](Rank rank) {
    const auto number = static_cast<size_t>(rank.value());
    return has_room(request, plan.ranks[number], counted[number]);
  });
}

}  // namespace

bool computes_again(const Plan& plan) {
  return std::any_of(plan.replicas.begin(), plan.replicas.end(), [](const ReplicaPlan& replica) {
    return std::any_of(replica.stages.begin(), replica.stages.end(), [](const StagePlan& stage) {
      return std::any_of(stage.recompute.begin(), stage.recompute.end(),
                         [](Recompute part) { return part != Recompute::kNone; });
    });
  });
}

Result<Unit> recompute_less(const PlanRequest& request, const CountMemory& count, Plan* plan) {
  std::vector<Halving> stages = halvings_of(plan);
  const auto is_done = [](const Halving& one) { return one.done(); };
  while (!std::all_of(stages.begin(), stages.end(), is_done)) {
    for (Halving& one : stages) one.set(one.next());
    MOTLEY_TRY(const std::vector<RankMemory> counted, count(*plan));
    for (Halving& one : stages) {
      if (one.done()) continue;
      const int next = one.next();
      if (fits(request, *plan, *one.stage, counted))
        one.high = next;
      else
        one.low = next + 1;
    }
  }
  for (Halving& one : stages) one.set(one.high);
  MOTLEY_TRY(const std::vector<RankMemory> counted, count(*plan));
  plan->prediction = {};
  MOTLEY_TRY_VOID(predict(request, plan, counted));
  plan->search.step_seconds = plan->prediction.step_seconds;
  plan->id = plan_id(*plan);
  return Unit{};
}

}  // namespace motley
