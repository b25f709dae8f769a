#include "planner/pipelines/refine_cuts.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>
#include <vector>

#include "planner/costs/cost_model.h"
#include "planner/pipelines/tensor_set.h"
#include "planner/pipelines/tensor_sets.h"
#include "planner/state/state_placement.h"

namespace motley {
namespace {

/// Of a step: what exchanging gradients takes, and waiting where replicas share links.
constexpr double kWorthShifting = 0.05;
/// Of a step: as much less is worth being counted.
constexpr double kClearlyLess = 0.999;
/// Of as many ranks more is tried than moving ends, and two things at once.
constexpr size_t kFewRanks = 8, kFewestRanks = 4;
/// Pairs of ends of so many stages are shifted where trying each would price no more ranks than
/// these, and no more are priced in all than those.
constexpr size_t kRanksOfPairs = 20'000, kMostRanks = 60'000;
/// Plans whose memory is counted.
constexpr int kMostCounts = 48;

/// False where it cannot be made.
using Change = std::function<bool(Plan*)>;

/// The end of this stage, and the beginning of the next, by one layer.
struct Shift {
  size_t stage;
  int by;  ///< 1 or -1
};

/// False where there is no such stage, or where it leaves one without layers.
bool shift(const std::vector<Shift>& ends, ReplicaPlan* replica) {
  bool any_again = false;
  std::vector<Recompute> of_layers;
  for (const StagePlan& stage : replica->stages) {
    any_again = any_again || !stage.recompute.empty();
    of_layers.insert(of_layers.end(), stage.recompute.begin(), stage.recompute.end());
    of_layers.resize(static_cast<size_t>(stage.last_layer) + 1, Recompute::kNone);
  }
  for (const Shift& end : ends) {
    if (end.stage + 1 >= replica->stages.size()) return false;
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

/// One end or two.
std::vector<std::vector<Shift>> shifts_of(size_t stages, size_t ranks) {
  std::vector<std::vector<Shift>> all;
  for (size_t stage = 0; stage + 1 < stages; ++stage)
    for (const int by : {-1, 1}) all.push_back({{stage, by}});
  const size_t pairs = all.size() * (all.size() - 2) / 2;
  if ((all.size() + pairs) * ranks > kRanksOfPairs) return all;
  for (size_t first = 0; first + 1 < stages; ++first)
    for (size_t second = first + 1; second + 1 < stages; ++second)
      for (const int by : {-1, 1})
        for (const int second_by : {-1, 1}) all.push_back({{first, by}, {second, second_by}});
  return all;
}

/// Of all replicas with as many stages at once.
void add_shifts_of_all(const Plan& plan, std::vector<Change>* changes) {
  std::set<size_t> numbers;
  for (const ReplicaPlan& replica : plan.replicas) numbers.insert(replica.stages.size());
  for (const size_t stages : numbers)
    for (std::vector<Shift>& ends : shifts_of(stages, plan.ranks.size()))
      changes->push_back([stages, ends = std::move(ends)](Plan* other) {
        return std::all_of(other->replicas.begin(), other->replicas.end(),
                           [&](ReplicaPlan& replica) {
                             return replica.stages.size() != stages || shift(ends, &replica);
                           });
      });
}

void add_shifts_of_each(const Plan& plan, std::vector<Change>* changes) {
  for (size_t number = 0; number < plan.replicas.size(); ++number)
    for (std::vector<Shift>& ends :
         shifts_of(plan.replicas[number].stages.size(), plan.ranks.size()))
      changes->push_back([number, ends = std::move(ends)](Plan* other) {
        return shift(ends, &other->replicas[number]);
      });
}

std::vector<StagePlan*> stages_of(Plan* plan) {
  std::vector<StagePlan*> stages;
  for (ReplicaPlan& replica : plan->replicas)
    for (StagePlan& stage : replica.stages) stages.push_back(&stage);
  return stages;
}

const RankPlacement& placement(const Plan& plan, Rank rank) {
  return plan.ranks[static_cast<size_t>(rank.value())];
}

/// All devices of two stages that compute in the same precision.
bool exchange(size_t first, size_t second, Plan* plan) {
  const std::vector<StagePlan*> stages = stages_of(plan);
  StagePlan &one = *stages[first], &other = *stages[second];
  if (one.precision != other.precision) return false;
  const RankPlacement& own = placement(*plan, one.ranks.front());
  const RankPlacement& others = placement(*plan, other.ranks.front());
  if (own.type == others.type && own.host == others.host && one.shares == other.shares)
    return false;
  std::swap(one.ranks, other.ranks);
  std::swap(one.shares, other.shares);
  return true;
}

void add_exchanges(const Plan& plan, std::vector<Change>* changes) {
  size_t stages = 0;
  for (const ReplicaPlan& replica : plan.replicas) stages += replica.stages.size();
  for (size_t first = 0; first < stages; ++first)
    for (size_t second = first + 1; second < stages; ++second)
      changes->push_back([=](Plan* other) { return exchange(first, second, other); });
}

/// Whole heads, as many each as can be; false where these are on several hosts, or too many.
bool share_alike(const Plan& plan, int heads, StagePlan* stage) {
  const auto count = static_cast<int>(stage->ranks.size());
  const std::string& host = placement(plan, stage->ranks.front()).host;
  if (count > std::min(heads, kMostSharing)) return false;
  for (const Rank rank : stage->ranks)
    if (placement(plan, rank).host != host) return false;
  stage->shares.clear();
  for (int i = 0; i < count; ++i)
    stage->shares.push_back(static_cast<double>(heads / count + (i < heads % count ? 1 : 0)) /
                            heads);
  return true;
}

/// A stage and the next in one.
bool merge(size_t number, size_t first, int heads, Plan* plan) {
  auto& stages = plan->replicas[number].stages;
  StagePlan &one = stages[first], &next = stages[first + 1];
  if (one.precision != next.precision) return false;
  if (!one.recompute.empty() || !next.recompute.empty()) {
    one.recompute.resize(static_cast<size_t>(one.layers()), Recompute::kNone);
    next.recompute.resize(static_cast<size_t>(next.layers()), Recompute::kNone);
    one.recompute.insert(one.recompute.end(), next.recompute.begin(), next.recompute.end());
  }
  one.last_layer = next.last_layer;
  one.ranks.insert(one.ranks.end(), next.ranks.begin(), next.ranks.end());
  stages.erase(stages.begin() + static_cast<std::ptrdiff_t>(first) + 1);
  return share_alike(*plan, heads, &one);
}

/// A device of a stage that several share to another.
bool move_device(size_t from, size_t member, size_t to, int heads, Plan* plan) {
  const std::vector<StagePlan*> stages = stages_of(plan);
  StagePlan &one = *stages[from], &other = *stages[to];
  if (one.precision != other.precision) return false;
  other.ranks.push_back(one.ranks[member]);
  one.ranks.erase(one.ranks.begin() + static_cast<std::ptrdiff_t>(member));
  return share_alike(*plan, heads, &one) && share_alike(*plan, heads, &other);
}

void add_sharing(const Plan& plan, int heads, std::vector<Change>* changes) {
  std::vector<size_t> sharing;  // devices of each stage
  for (size_t number = 0; number < plan.replicas.size(); ++number) {
    const auto& stages = plan.replicas[number].stages;
    for (const StagePlan& stage : stages) sharing.push_back(stage.ranks.size());
    for (size_t first = 0; first + 1 < stages.size(); ++first)
      changes->push_back([=](Plan* other) { return merge(number, first, heads, other); });
  }
  for (size_t from = 0; from < sharing.size(); ++from)
    for (size_t member = 0; sharing[from] > 1 && member < sharing[from]; ++member)
      for (size_t to = 0; to < sharing.size(); ++to)
        if (from != to)
          changes->push_back(
              [=](Plan* other) { return move_device(from, member, to, heads, other); });
}

/// As many as there are, and `more`.
bool part_alike(int more, int grain, ReplicaPlan* replica) {
  const int size = replica->micro_batch / grain;  // all in grains
  const int count = (replica->grains + size - 1) / size + more;
  if (count < 1) return false;
  const int alike = (replica->grains + count - 1) / count;
  replica->micro_batch = alike * grain;
  return alike != size;
}

void add_micro_batches(const Plan& plan, std::vector<Change>* changes) {
  for (size_t number = 0; number < plan.replicas.size(); ++number)
    for (const int more : {0, 1, -1})
      changes->push_back(
          [=](Plan* other) { return part_alike(more, other->grain, &other->replicas[number]); });
}

bool give_a_grain(size_t from, size_t to, Plan* plan) {
  ReplicaPlan& giver = plan->replicas[from];
  if (--giver.grains < 1) return false;
  giver.micro_batch = std::min(giver.micro_batch, giver.grains * plan->grain);
  ++plan->replicas[to].grains;
  return true;
}

void add_gifts(const Plan& plan, std::vector<Change>* changes) {
  for (size_t from = 0; from < plan.replicas.size(); ++from)
    for (size_t to = 0; to < plan.replicas.size(); ++to)
      if (from != to)
        changes->push_back([=](Plan* other) { return give_a_grain(from, to, other); });
}

bool is_small(const Plan& plan) { return plan.ranks.size() <= kFewRanks; }

/// Each with an end of a stage moved, too.
void add_with_shifts(const Plan& plan, const std::vector<Change>& others,
                     std::vector<Change>* changes) {
  for (const Change& one : others) {
    for (size_t number = 0; number < plan.replicas.size(); ++number)
      for (size_t stage = 0; stage + 1 < plan.replicas[number].stages.size(); ++stage)
        for (const int by : {-1, 1})
          changes->push_back([=](Plan* other) {
            return one(other) && shift({{stage, by}}, &other->replicas[number]);
          });
  }
}

std::vector<Change> changes_of(const PlanRequest& request, const Plan& plan) {
  const JobSpec& job = request.job;
  std::vector<Change> changes;
  add_shifts_of_all(plan, &changes);
  if (!is_small(plan)) return changes;
  std::vector<Change> others;
  add_exchanges(plan, &others);
  add_gifts(plan, &others);
  if (job.train.numerics == Numerics::kFast) add_micro_batches(plan, &others);
  if (may_share_stages(job) && !job.parallel.tensor && !job.parallel.pipeline)
    add_sharing(plan, job.model.heads, &others);
  changes.insert(changes.end(), others.begin(), others.end());
  if (plan.ranks.size() > kFewestRanks) return changes;
  if (plan.replicas.size() > 1) add_shifts_of_each(plan, &changes);
  add_with_shifts(plan, others, &changes);
  return changes;
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
      : request_(request), count_(count), ways_(ways), plan_(plan) {}

  /// Each change again and again, as long as it helps, until none of them does; true if any did.
  Result<bool> run() {
    std::vector<Change> changes = changes_of(request_, *plan_);
    size_t in_vain = 0;
    bool has_changed = false;
    for (size_t i = 0; in_vain < changes.size() && may_go_on();) {
      MOTLEY_TRY(const bool is_better, attempt(changes[i]));
      has_changed = has_changed || is_better;
      in_vain = is_better ? 0 : in_vain + 1;
      if (is_better) changes = changes_of(request_, *plan_);  // it may have other stages
      if (!is_better || i >= changes.size()) i = (i + 1) % changes.size();
    }
    return has_changed;
  }

 private:
  static double seconds(const Plan& plan) { return plan.prediction.step_seconds; }

  /// Bounds are of the micro-batches that are searched: of few ranks others are tried, too.
  bool may_go_on() const {
    return (is_small(*plan_) || seconds(*plan_) > plan_->search.lower_bound_step_seconds) &&
           ranks_ < kMostRanks && counts_ < kMostCounts;
  }

  /// False where it is no better.
  Result<bool> attempt(const Change& change) {
    Plan other = *plan_;
    if (!change(&other)) return false;
    other.owners = even_ownership(other, request_.job.model);
    other.prediction = {};
    ranks_ += other.ranks.size();
    const auto predicted = predict_step(request_, &other);
    // Of a device of which it was not measured.
    if (!predicted && predicted.error().code == ErrorCode::kInvalidSpec) return false;
    if (!predicted) return fail(predicted.error());
    if (seconds(other) >= seconds(*plan_) * kClearlyLess) return false;
    if (!validate(other, request_.job.model)) return false;  // someone would have nothing
    ++counts_;
    MOTLEY_TRY(PlacedState placed, place_state(request_, count_, other, ways_));
    if (!placed.fits) return false;
    other = std::move(placed.plan);
    MOTLEY_TRY_VOID(predict(request_, &other, placed.counted));
    if (seconds(other) >= seconds(*plan_)) return false;
    *plan_ = std::move(other);
    return true;
  }

  const PlanRequest& request_;
  const CountMemory& count_;
  const StateWays ways_;
  Plan* plan_;
  size_t ranks_ = 0;  ///< priced
  int counts_ = 0;
};

}  // namespace

Result<Unit> refine_cuts(const PlanRequest& request, const CountMemory& count, Plan* plan,
                         bool may_be_in_host) {
  if (is_small(*plan) ? !is_cut(*plan) : !may_be_shifted(*plan)) return Unit{};
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
