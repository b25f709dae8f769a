#include "planner/pipelines/cut_changes.h"

#include <algorithm>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "planner/costs/cost_model.h"
#include "planner/pipelines/packed_plan.h"
#include "planner/pipelines/tensor_set.h"
#include "planner/pipelines/tensor_sets.h"

namespace motley {
namespace {

/// Of as many ranks two things are changed at once.
constexpr size_t kFewestRanks = 4;
/// Pairs of ends of so many stages are shifted where trying each would price no more ranks.
constexpr size_t kRanksOfPairs = 20'000;

/// The end of this stage, and the beginning of the next, by one layer.
struct Shift {
  size_t stage;
  int by;  ///< 1 or -1
};

/// Of all layers.
std::vector<Recompute> recomputed(const ReplicaPlan& replica) {
  std::vector<Recompute> of_layers;
  for (const StagePlan& stage : replica.stages) {
    const auto end = static_cast<size_t>(stage.last_layer) + 1;
    if (of_layers.size() < end) of_layers.resize(end, Recompute::kNone);
    std::copy(stage.recompute.begin(), stage.recompute.end(),
              of_layers.begin() + stage.first_layer);
  }
  return of_layers;
}

std::vector<int> layers_of(const ReplicaPlan& replica) {
  std::vector<int> layers;
  for (const StagePlan& stage : replica.stages) layers.push_back(stage.layers());
  return layers;
}

/// So many for each stage in turn; what is computed again stays. False where one has none.
bool cut(const std::vector<int>& layers, const std::vector<Recompute>& of_layers,
         ReplicaPlan* replica) {
  const bool any_again = std::any_of(of_layers.begin(), of_layers.end(),
                                     [](Recompute one) { return one != Recompute::kNone; });
  LayerIndex first = 0;
  for (size_t s = 0; s < layers.size(); first += layers[s], ++s) {
    if (layers[s] < 1) return false;
    StagePlan& stage = replica->stages[s];
    stage.first_layer = first;
    stage.last_layer = first + layers[s] - 1;
    stage.recompute.clear();
    if (any_again)
      stage.recompute.assign(of_layers.begin() + stage.first_layer,
                             of_layers.begin() + stage.last_layer + 1);
  }
  return true;
}

/// False where there is no such stage, or where it leaves one without layers.
bool shift(const std::vector<Shift>& ends, ReplicaPlan* replica) {
  std::vector<int> layers = layers_of(*replica);
  for (const Shift& end : ends) {
    if (end.stage + 1 >= layers.size()) return false;
    layers[end.stage] += end.by;
    layers[end.stage + 1] -= end.by;
  }
  return cut(layers, recomputed(*replica), replica);
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
void add_shifts_of_all(const Plan& plan, std::vector<CutChange>* changes) {
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

void add_shifts_of_each(const Plan& plan, std::vector<CutChange>* changes) {
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

void add_exchanges(const Plan& plan, std::vector<CutChange>* changes) {
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

/// Without a stage, whose layers its neighbour `heir` has.
void hand_over(size_t stage, size_t heir, ReplicaPlan* replica) {
  std::vector<int> layers = layers_of(*replica);
  const std::vector<Recompute> of_layers = recomputed(*replica);
  layers[heir] += layers[stage];
  layers.erase(layers.begin() + static_cast<std::ptrdiff_t>(stage));
  replica->stages.erase(replica->stages.begin() + static_cast<std::ptrdiff_t>(stage));
  cut(layers, of_layers, replica);
}

/// A stage and the next in one.
bool merge(size_t number, size_t first, int heads, Plan* plan) {
  ReplicaPlan& replica = plan->replicas[number];
  const StagePlan next = replica.stages[first + 1];
  if (replica.stages[first].precision != next.precision) return false;
  hand_over(first + 1, first, &replica);
  StagePlan& one = replica.stages[first];
  one.ranks.insert(one.ranks.end(), next.ranks.begin(), next.ranks.end());
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

void add_sharing(const Plan& plan, int heads, std::vector<CutChange>* changes) {
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

void add_micro_batches(const Plan& plan, std::vector<CutChange>* changes) {
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

void add_gifts(const Plan& plan, std::vector<CutChange>* changes) {
  for (size_t from = 0; from < plan.replicas.size(); ++from)
    for (size_t to = 0; to < plan.replicas.size(); ++to)
      if (from != to)
        changes->push_back([=](Plan* other) { return give_a_grain(from, to, other); });
}

/// The stages from `first` on change places with those from `middle` on, each with as many layers.
bool rotate(size_t number, size_t first, size_t middle, size_t last, Plan* plan) {
  ReplicaPlan& replica = plan->replicas[number];
  const std::vector<Recompute> of_layers = recomputed(replica);
  const auto at = [&](size_t stage) {
    return replica.stages.begin() + static_cast<std::ptrdiff_t>(stage);
  };
  std::rotate(at(first), at(middle), at(last));
  return cut(layers_of(replica), of_layers, &replica);
}

bool is_on_one_host(const Plan& plan) {
  return std::all_of(plan.ranks.begin(), plan.ranks.end(), [&](const RankPlacement& rank) {
    return rank.host == plan.ranks.front().host;
  });
}

/// Within a host the search has looked at orders, and links are alike.
void add_rotations(const Plan& plan, std::vector<CutChange>* changes) {
  if (is_on_one_host(plan)) return;
  for (size_t number = 0; number < plan.replicas.size(); ++number) {
    const size_t stages = plan.replicas[number].stages.size();
    for (size_t first = 0; first < stages; ++first)
      for (size_t middle = first + 1; middle < stages; ++middle)
        for (size_t last = middle + 1; last <= stages; ++last)
          changes->push_back(
              [=](Plan* other) { return rotate(number, first, middle, last, other); });
  }
}

void leave_out(const RankPlacement& rank, Plan* plan) {
  plan->left_out.push_back({rank.device, kNoneQuickerWith});
}

/// Without the only device of a stage.
bool drop(size_t number, size_t stage, size_t heir, Plan* plan) {
  ReplicaPlan& replica = plan->replicas[number];
  const Rank gone = replica.stages[stage].ranks.front();
  hand_over(stage, heir, &replica);
  leave_out(placement(*plan, gone), plan);
  plan->ranks.erase(plan->ranks.begin() + gone.value());
  for (StagePlan* other : stages_of(plan))
    for (Rank& rank : other->ranks)
      if (rank > gone) rank = Rank(rank.value() - 1);
  return true;
}

void add_drops(const Plan& plan, std::vector<CutChange>* changes) {
  for (size_t number = 0; number < plan.replicas.size(); ++number) {
    const auto& stages = plan.replicas[number].stages;
    for (size_t stage = 0; stage < stages.size(); ++stage)
      for (size_t heir = stage == 0 ? 1 : stage - 1; heir < stages.size() && heir <= stage + 1;
           heir += 2)
        if (stages[stage].ranks.size() == 1)
          changes->push_back([=](Plan* other) { return drop(number, stage, heir, other); });
  }
}

/// Of kinds that the plan has the devices that it does without: of those of a host that are alike
/// one.
std::vector<DeviceSpec> others_of(const PlanRequest& request, const Plan& plan) {
  std::set<std::string> used, types;
  for (const RankPlacement& rank : plan.ranks) used.insert(rank.device), types.insert(rank.type);
  std::set<std::tuple<std::string, std::string, Bytes>> known;
  std::vector<DeviceSpec> others;
  for (const DeviceSpec& device : fitting(request.fleet, request.job).devices) {
    const DeviceProfile* measured = request.profile.find(device.id);
    if (used.contains(device.id) || !types.contains(device.type) || measured == nullptr) continue;
    if (known.emplace(device.host, device.type, measured->memory_limit).second)
      others.push_back(device);
  }
  return others;
}

/// What devices of the type compute in.
Precision precision_of(const Plan& plan, const std::string& type) {
  for (const ReplicaPlan& replica : plan.replicas)
    for (const StagePlan& stage : replica.stages)
      if (placement(plan, stage.ranks.front()).type == type) return stage.precision;
  return Precision::kAuto;
}

/// Another device has the stage.
bool replace(size_t number, const DeviceSpec& device, Plan* plan) {
  StagePlan& stage = *stages_of(plan)[number];
  RankPlacement& rank = plan->ranks[static_cast<size_t>(stage.ranks.front().value())];
  stage.precision = precision_of(*plan, device.type);
  std::erase_if(plan->left_out, [&](const LeftOut& left) { return left.device == device.id; });
  leave_out(rank, plan);
  rank = {device.id, device.host, device.type};
  keep_hosts_together(plan);
  return true;
}

void add_replacements(const PlanRequest& request, const Plan& plan,
                      std::vector<CutChange>* changes) {
  const std::vector<DeviceSpec> others = others_of(request, plan);
  size_t number = 0;
  for (const ReplicaPlan& replica : plan.replicas)
    for (const StagePlan& stage : replica.stages) {
      for (const DeviceSpec& device : others)
        if (stage.ranks.size() == 1)
          changes->push_back([=](Plan* other) { return replace(number, device, other); });
      ++number;
    }
}

/// Each with an end of a stage moved, too.
void add_with_shifts(const Plan& plan, const std::vector<CutChange>& others,
                     std::vector<CutChange>* changes) {
  for (const CutChange& one : others) {
    for (size_t number = 0; number < plan.replicas.size(); ++number)
      for (size_t stage = 0; stage + 1 < plan.replicas[number].stages.size(); ++stage)
        for (const int by : {-1, 1})
          changes->push_back([=](Plan* other) {
            return one(other) && shift({{stage, by}}, &other->replicas[number]);
          });
  }
}

}  // namespace

bool has_few_ranks(const Plan& plan) {
  constexpr size_t kFewRanks = 8;
  return plan.ranks.size() <= kFewRanks;
}

std::vector<CutChange> changes_of(const PlanRequest& request, const Plan& plan, CutChanges which) {
  const JobSpec& job = request.job;
  std::vector<CutChange> changes;
  add_shifts_of_all(plan, &changes);
  if (!has_few_ranks(plan)) return changes;
  std::vector<CutChange> others;
  add_exchanges(plan, &others);
  add_gifts(plan, &others);
  if (job.train.numerics == Numerics::kFast) add_micro_batches(plan, &others);
  if (may_share_stages(job) && !job.parallel.tensor && !job.parallel.pipeline)
    add_sharing(plan, job.model.heads, &others);
  if (which == CutChanges::kAll) {
    add_rotations(plan, &others);
    add_replacements(request, plan, &others);
    const int least = job.devices.count ? job.devices.count->low : 1;
    if (!job.parallel.pipeline && plan.world_size() > least) add_drops(plan, &others);
  }
  changes.insert(changes.end(), others.begin(), others.end());
  if (plan.ranks.size() > kFewestRanks) return changes;
  if (plan.replicas.size() > 1) add_shifts_of_each(plan, &changes);
  add_with_shifts(plan, others, &changes);
  return changes;
}

}  // namespace motley
