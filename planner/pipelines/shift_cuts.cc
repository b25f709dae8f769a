#include "planner/pipelines/shift_cuts.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "planner/costs/cost_model.h"

namespace motley {
namespace {

/// Of a step: what exchanging gradients takes.
constexpr double kWorthShifting = 0.05;
/// Of a step: as much less is worth being counted.
constexpr double kClearlyLess = 0.999;
/// Of more stages pairs of ends are too many.
constexpr size_t kFewStages = 8;

/// The end of this stage, and the beginning of the next, by one layer.
struct Shift {
  size_t stage;
  int by;  ///< 1 or -1
};

/// False where it leaves a stage without layers.
bool shift(const Shift& shift, ReplicaPlan* replica) {
  StagePlan& before = replica->stages[shift.stage];
  StagePlan& after = replica->stages[shift.stage + 1];
  const bool to_before = shift.by > 0;
  if ((to_before ? after : before).layers() == 1) return false;
  if (!before.recompute.empty()) {
    if (to_before) {
      before.recompute.push_back(after.recompute.front());
      after.recompute.erase(after.recompute.begin());
    } else {
      after.recompute.insert(after.recompute.begin(), before.recompute.back());
      before.recompute.pop_back();
    }
  }
  before.last_layer += shift.by;
  after.first_layer += shift.by;
  return true;
}

std::vector<std::vector<Shift>> shifts_of(size_t stages) {
  std::vector<std::vector<Shift>> all;
  for (size_t stage = 0; stage + 1 < stages; ++stage)
    for (const int by : {-1, 1}) all.push_back({{stage, by}});
  if (stages > kFewStages) return all;
  for (size_t first = 0; first + 1 < stages; ++first)
    for (size_t second = first + 1; second + 1 < stages; ++second)
      for (const int by : {-1, 1})
        for (const int second_by : {-1, 1}) all.push_back({{first, by}, {second, second_by}});
  return all;
}

bool are_over_hosts(const Plan& plan) {
  const auto host_of = [&](const StagePlan& stage) {
    return plan.ranks[static_cast<size_t>(stage.ranks.front().value())].host;
  };
  return std::any_of(plan.replicas.begin(), plan.replicas.end(), [&](const ReplicaPlan& replica) {
    return std::any_of(replica.stages.begin(), replica.stages.end(), [&](const StagePlan& stage) {
      return host_of(stage) != host_of(replica.stages.front());
    });
  });
}

class CutShifting {
 public:
  CutShifting(const PlanRequest& request, const CountMemory& count, Plan* plan)
      : request_(request), count_(count), plan_(plan) {}

  /// Until none of all shifts of all numbers of stages is any better.
  Result<Unit> run() {
    std::set<size_t> numbers;
    for (const ReplicaPlan& replica : plan_->replicas) numbers.insert(replica.stages.size());
    for (bool any = true; any;) {
      any = false;
      for (const size_t stages : numbers)
        for (const std::vector<Shift>& shifts : shifts_of(stages)) {
          bool is_better = true;
          while (is_better && seconds(*plan_) > plan_->search.lower_bound_step_seconds) {
            MOTLEY_TRY(is_better, attempt(stages, shifts));
            any = any || is_better;
          }
        }
    }
    return Unit{};
  }

 private:
  static double seconds(const Plan& plan) { return plan.prediction.step_seconds; }

  std::optional<Plan> shifted(size_t stages, const std::vector<Shift>& shifts) const {
    Plan plan = *plan_;
    for (ReplicaPlan& replica : plan.replicas)
      for (const Shift& one : shifts)
        if (replica.stages.size() == stages && !shift(one, &replica)) return std::nullopt;
    plan.owners = even_ownership(plan, request_.job.model);
    plan.prediction = {};
    return plan;
  }

  /// False where it is no better.
  Result<bool> attempt(size_t stages, const std::vector<Shift>& shifts) {
    std::optional<Plan> other = shifted(stages, shifts);
    if (!other) return false;
    MOTLEY_TRY_VOID(predict_step(request_, &*other));
    if (seconds(*other) >= seconds(*plan_) * kClearlyLess) return false;
    PlanRequest counted = request_;
    other->prediction = {};
    MOTLEY_TRY(counted.counted, count_(*other));
    for (size_t rank = 0; rank < other->ranks.size(); ++rank) {
      const DeviceProfile* const device = request_.profile.find(other->ranks[rank].device);
      if (counted.counted[rank].total > usable_memory(*device, request_.memory_headroom))
        return false;
    }
    MOTLEY_TRY_VOID(predict(counted, &*other));
    if (seconds(*other) >= seconds(*plan_)) return false;
    *plan_ = *std::move(other);
    return true;
  }

  const PlanRequest& request_;
  const CountMemory& count_;
  Plan* plan_;
};

}  // namespace

Result<Unit> shift_cuts(const PlanRequest& request, const CountMemory& count, Plan* plan) {
  const Prediction& known = plan->prediction;
  if (known.communication_seconds < kWorthShifting * known.step_seconds || !are_over_hosts(*plan))
    return Unit{};
  MOTLEY_TRY_VOID(CutShifting(request, count, plan).run());
  SearchRecord& search = plan->search;
  search.step_seconds = plan->prediction.step_seconds;
  if (search.lower_bound_step_seconds > 0)
    search.gap = search.step_seconds / search.lower_bound_step_seconds - 1;
  plan->id = plan_id(*plan);
  return Unit{};
}

}  // namespace motley
