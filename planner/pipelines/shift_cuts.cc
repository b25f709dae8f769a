#include "planner/pipelines/shift_cuts.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "planner/costs/cost_model.h"

namespace motley {
namespace {

/// Of a step: what exchanging gradients takes, and waiting where replicas share links.
constexpr double kWorthShifting = 0.05;
/// Of a step: as much less is worth being counted.
constexpr double kClearlyLess = 0.999;
/// Pairs of ends of so many stages are shifted where trying each would price no more ranks than
/// these, and no more are priced in all than those.
constexpr size_t kRanksOfPairs = 20'000, kMostRanks = 60'000;
/// Cuts whose memory is counted.
constexpr int kMostCounts = 48;

/// The end of this stage, and the beginning of the next, by one layer.
struct Shift {
  size_t stage;
  int by;  ///< 1 or -1
};
/// Of all replicas with so many stages.
struct ShiftOfAll {
  size_t stages;
  std::vector<Shift> ends;
};

/// False where it leaves a stage without layers.
bool shift(const std::vector<Shift>& ends, ReplicaPlan* replica) {
  bool any_again = false;
  std::vector<Recompute> of_layers;
  for (const StagePlan& stage : replica->stages) {
    any_again = any_again || !stage.recompute.empty();
    of_layers.insert(of_layers.end(), stage.recompute.begin(), stage.recompute.end());
    of_layers.resize(static_cast<size_t>(stage.last_layer) + 1, Recompute::kNone);
  }
  for (const Shift& end : ends) {
    replica->stages[end.stage].last_layer += end.by;
    replica->stages[end.stage + 1].first_layer += end.by;
  }
  for (StagePlan& stage : replica->stages) {
    if (stage.layers() < 1) return false;
    if (!any_again) continue;
    stage.recompute.assign(of_layers.begin() + stage.first_layer,
                           of_layers.begin() + stage.last_layer + 1);
  }
  return true;
}

std::vector<ShiftOfAll> shifts_of(size_t stages, size_t ranks) {
  std::vector<ShiftOfAll> all;
  for (size_t stage = 0; stage + 1 < stages; ++stage)
    for (const int by : {-1, 1}) all.push_back({stages, {{stage, by}}});
  const size_t pairs = all.size() * (all.size() - 2) / 2;
  if ((all.size() + pairs) * ranks > kRanksOfPairs) return all;
  for (size_t first = 0; first + 1 < stages; ++first)
    for (size_t second = first + 1; second + 1 < stages; ++second)
      for (const int by : {-1, 1})
        for (const int second_by : {-1, 1})
          all.push_back({stages, {{first, by}, {second, second_by}}});
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

  /// Each again and again, as long as it helps, until none of them does; true if any did.
  Result<bool> run() {
    std::set<size_t> numbers;
    for (const ReplicaPlan& replica : plan_->replicas) numbers.insert(replica.stages.size());
    std::vector<ShiftOfAll> shifts;
    for (const size_t stages : numbers)
      for (ShiftOfAll& one : shifts_of(stages, plan_->ranks.size()))
        shifts.push_back(std::move(one));
    size_t in_vain = 0;
    bool has_shifted = false;
    for (size_t i = 0; in_vain < shifts.size() && may_go_on();) {
      MOTLEY_TRY(const bool is_better, attempt(shifts[i]));
      has_shifted = has_shifted || is_better;
      in_vain = is_better ? 0 : in_vain + 1;
      if (!is_better) i = (i + 1) % shifts.size();
    }
    return has_shifted;
  }

 private:
  static double seconds(const Plan& plan) { return plan.prediction.step_seconds; }

  bool may_go_on() const {
    return seconds(*plan_) > plan_->search.lower_bound_step_seconds && ranks_ < kMostRanks &&
           counts_ < kMostCounts;
  }

  std::optional<Plan> shifted(const ShiftOfAll& shifts) const {
    Plan plan = *plan_;
    for (ReplicaPlan& replica : plan.replicas)
      if (replica.stages.size() == shifts.stages && !shift(shifts.ends, &replica))
        return std::nullopt;
    plan.owners = even_ownership(plan, request_.job.model);
    plan.prediction = {};
    return plan;
  }

  /// False where it is no better.
  Result<bool> attempt(const ShiftOfAll& shifts) {
    std::optional<Plan> other = shifted(shifts);
    if (!other) return false;
    ranks_ += other->ranks.size();
    const auto predicted = predict_step(request_, &*other);
    // Of a device that was not measured to compute again.
    if (!predicted && predicted.error().code == ErrorCode::kInvalidSpec) return false;
    if (!predicted) return fail(predicted.error());
    if (seconds(*other) >= seconds(*plan_) * kClearlyLess) return false;
    ++counts_;
    other->prediction = {};
    MOTLEY_TRY(const std::vector<RankMemory> counted, count_(*other));
    if (!have_room(request_, *other, counted)) return false;
    MOTLEY_TRY_VOID(predict(request_, &*other, counted));
    if (seconds(*other) >= seconds(*plan_)) return false;
    *plan_ = *std::move(other);
    return true;
  }

  const PlanRequest& request_;
  const CountMemory& count_;
  Plan* plan_;
  size_t ranks_ = 0;  ///< priced
  int counts_ = 0;
};

}  // namespace

Result<Unit> shift_cuts(const PlanRequest& request, const CountMemory& count, Plan* plan) {
  const Prediction& known = plan->prediction;
  const double waits = plan->replicas.size() > 1 ? known.bubble_seconds : 0;
  const double others = known.communication_seconds + waits;
  if (others < kWorthShifting * known.step_seconds || !are_over_hosts(*plan)) return Unit{};
  MOTLEY_TRY(const bool has_shifted, CutShifting(request, count, plan).run());
  if (!has_shifted) return Unit{};
  plan->search.step_seconds = plan->prediction.step_seconds;
  plan->id = plan_id(*plan);
  return Unit{};
}

}  // namespace motley
