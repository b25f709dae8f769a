#include "planner/pipelines/refine_cuts.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "planner/costs/cost_model.h"
#include "planner/pipelines/cut_changes.h"
#include "planner/state/state_placement.h"

namespace motley {
namespace {

/// Of a step: what exchanging gradients takes, and waiting where replicas share links.
constexpr double kWorthShifting = 0.05;
/// Of a step: as much less is worth being counted.
constexpr double kClearlyLess = 0.999;
/// As many are priced in all.
constexpr size_t kMostRanks = 60'000;
/// Plans whose memory is counted.
constexpr int kMostCounts = 48;

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

/// Whether links take much of the step.
bool may_be_shifted(const Plan& plan) {
  const Prediction& known = plan.prediction;
  const double waits = plan.replicas.size() > 1 ? known.bubble_seconds : 0;
  const double others = known.communication_seconds + waits;
  return others >= kWorthShifting * known.step_seconds && are_over_hosts(plan);
}

class Refinement {
 public:
  Refinement(const PlanRequest& request, const CountMemory& count, const StateWays& ways,
             Plan* plan)
      : request_(request), count_(count), ways_(ways), plan_(plan) {
    take_bare();
  }

  /// First with the devices where they are; true if anything helped.
  Result<bool> run() {
    MOTLEY_TRY(const bool has_changed, climb(CutChanges::kInPlace));
    MOTLEY_TRY(const bool more, climb(CutChanges::kAll));
    return has_changed || more;
  }

 private:
  /// Each change again and again, as long as it helps, until none of them does; true if any did.
  Result<bool> climb(CutChanges which) {
    std::vector<CutChange> changes = changes_of(request_, *plan_, which);
    size_t in_vain = 0;
    bool has_changed = false;
    for (size_t i = 0; in_vain < changes.size() && may_go_on();) {
      MOTLEY_TRY(const bool is_better, attempt(changes[i]));
      has_changed = has_changed || is_better;
      in_vain = is_better ? 0 : in_vain + 1;
      if (is_better) changes = changes_of(request_, *plan_, which);  // it may have other stages
      if (!is_better || i >= changes.size()) i = (i + 1) % changes.size();
    }
    return has_changed;
  }

  static double seconds(const Plan& plan) { return plan.prediction.step_seconds; }

  /// Bounds are of the micro-batches that are searched: of few ranks others are tried, too.
  bool may_go_on() const {
    return (has_few_ranks(*plan_) || seconds(*plan_) > plan_->search.lower_bound_step_seconds) &&
           ranks_ < kMostRanks && counts_ < kMostCounts;
  }

  /// False where it is no better.
  Result<bool> attempt(const CutChange& change) {
    Plan other = bare_;
    if (!change(&other)) return false;
    ranks_ += other.ranks.size();
    const double enough = seconds(*plan_) * kClearlyLess;
    const auto predicted = predict_step(request_, &other, enough);
    // Of a device of which it was not measured.
    if (!predicted && predicted.error().code == ErrorCode::kInvalidSpec) return false;
    if (!predicted) return fail(predicted.error());
    if (seconds(other) >= enough) return false;
    if (!validate_cut(other, request_.job.model)) return false;  // someone would have nothing
    ++counts_;
    MOTLEY_TRY(PlacedState placed, place_state(request_, count_, other, ways_));
    if (!placed.fits) return false;
    other = std::move(placed.plan);
    MOTLEY_TRY_VOID(predict(request_, &other, placed.counted));
    if (seconds(other) >= seconds(*plan_)) return false;
    *plan_ = std::move(other);
    take_bare();
    return true;
  }

  /// Owners are many, and others than of a changed plan.
  void take_bare() {
    bare_ = *plan_;
    bare_.owners.clear();
    bare_.prediction = {};
  }

  const PlanRequest& request_;
  const CountMemory& count_;
  const StateWays ways_;
  Plan* plan_;
  Plan bare_;         ///< without owners and prediction
  size_t ranks_ = 0;  ///< priced
  int counts_ = 0;
};

}  // namespace

Result<Unit> refine_cuts(const PlanRequest& request, const CountMemory& count, Plan* plan,
                         bool may_be_in_host) {
  if (has_few_ranks(*plan) ? !is_cut(*plan) : !may_be_shifted(*plan)) return Unit{};
  MOTLEY_TRY(const bool has_changed,
             Refinement(request, count, {.host = may_be_in_host}, plan).run());
  if (!has_changed) return Unit{};
  plan->search.step_seconds = plan->prediction.step_seconds;
  plan->search.lower_bound_step_seconds =
      std::min(plan->search.lower_bound_step_seconds, plan->search.step_seconds);
  plan->id = plan_id(*plan);
  return Unit{};
}

}  // namespace motley
