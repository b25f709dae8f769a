#include "planner/state/state_search.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "planner/costs/cost_model.h"
#include "planner/costs/layer_times.h"
#include "planner/costs/sums_beside.h"
#include "planner/pipelines/pipeline_search.h"
#include "planner/pipelines/pipeline_space.h"
#include "planner/pipelines/recompute_less.h"
#include "planner/plain/device_index.h"

namespace motley {
namespace {

/// Shared state's updates as they are where each of so many replicas has as much of it as the
/// others, and none of it anywhere in the way.
Profile with_less_updates(const PlanRequest& request, const StateWays& ways, int replicas) {
  Profile profile = request.profile;
  if (!ways.shard) return profile;
  for (DeviceProfile& device : profile.devices) {
    if (ways.host && device.host_update_seconds > 0)
      device.update_seconds = std::min(device.update_seconds, device.host_update_seconds);
    device.update_seconds /= replicas;
  }
  return profile;
}

/// Seconds, of all that a device may hold, at most.
double longest_update(const Profile& profile, bool in_host = false) {
  double longest = 0;
  for (const DeviceProfile& device : profile.devices)
    longest = std::max({longest, device.update_seconds, whole_update_seconds(device, in_host)});
  return longest;
}

CountLayers without_state(const CountLayers& layers, const StateWays& ways) {
  return [&layers, ways](const LayersToCount& asked) -> Result<LayerMemoryTable> {
    MOTLEY_TRY(LayerMemoryTable table, layers(asked));
    if (!ways.shard && asked.device != DeviceKind::kCuda) return table;  // host memory is its own
    for (auto& [layer, memory] : table) memory.fixed = memory.fixed - memory.state;
    return table;
  };
}

/// Who lacks room for state with micro-batches of a grain has nothing to do with less: the replica
/// with the largest is, where those are of more, so that it owns more of the state.
void have_largest_do_with_less(const Plan& plan, const std::vector<Bytes>& usable,
                               std::vector<RankMemory>* counted) {
  const auto each_rank = [&](const ReplicaPlan& replica, const auto& what) {
    for (const StagePlan& stage : replica.stages)
      for (const Rank rank : stage.ranks) what(static_cast<size_t>(rank.value()));
  };
  const auto largest = std::max_element(
      plan.replicas.begin(), plan.replicas.end(),
      [](const ReplicaPlan& a, const ReplicaPlan& b) { return a.micro_batch < b.micro_batch; });
  if (largest->micro_batch == plan.grain) return;
  bool lacked = false;
  for (const ReplicaPlan& replica : plan.replicas)
    if (replica.micro_batch == plan.grain)
      each_rank(replica, [&](size_t rank) {
        Bytes& total = (*counted)[rank].total;
        lacked = lacked || total > usable[rank];
        total = std::min(total, usable[rank]);
      });
  if (lacked)
    each_rank(*largest, [&](size_t rank) { (*counted)[rank].total = usable[rank] + Bytes(1); });
}

/// What each rank needs with its state placed, or where that is too much, more than it has of those
/// that are to do with less. Where a host has too little, all that keep something there need too
/// much.
CountMemory with_placed_state(const PlanRequest& request, const CountMemory& count,
                              const StateWays& ways) {
  return [&request, &count, ways](const Plan& plan) -> Result<std::vector<RankMemory>> {
    MOTLEY_TRY(PlacedState placed, place_state(request, count, plan, ways));
    if (placed.fits) return std::move(placed.counted);
    const DeviceIndex index(request.fleet, request.profile);
    std::vector<Bytes> usable;
    bool devices_fit = true;
    for (size_t rank = 0; rank < placed.counted.size(); ++rank) {
      usable.push_back(
          usable_memory(*index.profile(plan.ranks[rank].device), request.memory_headroom));
      devices_fit = devices_fit && placed.counted[rank].total <= usable.back();
    }
    for (size_t rank = 0; devices_fit && rank < usable.size(); ++rank)
      if (placed.counted[rank].host > Bytes(0))
        placed.counted[rank].total = usable[rank] + Bytes(1);
    if (ways.shard && !devices_fit) have_largest_do_with_less(plan, usable, &placed.counted);
    return std::move(placed.counted);
  };
}

/// Where that was measured.
void recompute_all(const PlanRequest& request, Plan* plan) {
  const DeviceIndex index(request.fleet, request.profile);
  const auto may = [&](Rank rank) {
    const std::string& device = plan->ranks[static_cast<size_t>(rank.value())].device;
    return is_measured(*index.profile(device), Recompute::kBlock);
  };
  for (ReplicaPlan& replica : plan->replicas)
    for (StagePlan& stage : replica.stages) {
      if (!std::all_of(stage.ranks.begin(), stage.ranks.end(), may)) continue;
      stage.recompute.clear();
      for (LayerIndex layer = stage.first_layer; layer <= stage.last_layer; ++layer)
        stage.recompute.push_back(is_block(layer, request.job.model) ? Recompute::kBlock
                                                                     : Recompute::kNone);
    }
}

/// Of so many devices each number of replicas is searched for by itself.
constexpr size_t kVeryFewDevices = 4;

bool is_each_number_searched(const MemoryWays& ways, const PlanRequest& request) {
  return ways.state.shard && request.fleet.devices.size() <= kVeryFewDevices;
}

/// Of so many replicas or more.
Result<Plan> search_replicas(const MemoryWays& ways, const PlanRequest& request,
                             const MemoryCounter& counter, int replicas) {
  const Profile profile = with_less_updates(request, ways.state, replicas);
  JobSpec job = request.job;
  if (is_each_number_searched(ways, request) && !job.parallel.data) job.parallel.data = replicas;
  const PlanRequest without{.job = job,
                            .fleet = request.fleet,
                            .profile = profile,
                            .memory_headroom = request.memory_headroom,
                            .least_replicas = replicas,
                            .host_state = ways.state.host && !ways.state.shard,
                            .held_by = request.held_by,
                            .below = request.below,
                            .prove = request.prove};
  const MemoryCounter placing{with_placed_state(request, counter.plan, ways.state),
                              without_state(counter.layers, ways.state)};
  MOTLEY_TRY(Plan found, ways.recompute ? search_recomputing(without, placing)
                                        : search_pipelines(without, placing));
  if (found.prediction.step_seconds >= request.below) return found;
  MOTLEY_TRY(PlacedState placed, place_state(request, counter.plan, found, ways.state));
  if (!placed.fits && ways.recompute) {  // stages that share state take each other's memory
    recompute_all(request, &found);
    MOTLEY_TRY(placed, place_state(request, counter.plan, found, ways.state));
  }
  if (!placed.fits) return fail(ErrorCode::kNoPlan, "what was found does not fit");
  return plan_of(request, std::move(placed));
}

/// Seconds, by as many devices as there are, or fewer; of very many it is not looked up.
double most_exchanged(const PlanRequest& request) {
  constexpr size_t kFew = 64;
  const size_t devices = request.fleet.devices.size();
  if (devices > kFew) return std::numeric_limits<double>::infinity();
  const ReductionModel reduction(request.profile, gradient_bytes(request.job));
  const std::vector<std::string> hosts = request.fleet.hosts();
  double most = reduction.host_seconds(hosts);
  for (int ranks = 2; ranks <= static_cast<int>(devices); ++ranks)
    most = std::max(most, reduction.seconds(ranks, hosts));
  return most;
}

}  // namespace

std::string memory_words(const MemoryWays& ways) {
  const std::string state = state_words(ways.state);
  if (!ways.recompute) return state;
  return "blocks computed again" + (state.empty() ? "" : ", " + state);
}

Result<Plan> search_with(const MemoryWays& ways, const PlanRequest& request,
                         const MemoryCounter& counter, const std::vector<int>& sharing_replicas) {
  if (ways.state == StateWays{})
    return ways.recompute ? search_recomputing(request, counter)
                          : search_pipelines(request, counter);
  MOTLEY_TRY(const LeastSeconds whatever, least_seconds_of_pipelines(request));
  double least = whatever.step;
  const int grain = grain_of(request.job, request.fleet.devices.size());
  const int most = std::min(static_cast<int>(request.fleet.devices.size()),
                            (request.job.train.global_batch + grain - 1) / grain);
  Result<Plan> best =
      fail(ErrorCode::kNoPlan, "no plan found with " + memory_words(ways) + " fits");
  const std::vector<int>& numbers =
      is_each_number_searched(ways, request) ? kSharingReplicas : sharing_replicas;
  for (const int replicas : ways.state.shard ? numbers : std::vector<int>{1}) {
    if (replicas > most) continue;
    Result<Plan> plan = search_replicas(ways, request, counter, replicas);
    if (!plan && plan.error().code != ErrorCode::kNoPlan) return plan;
    if (plan && !ways.recompute && !is_each_number_searched(ways, request))
      least = std::max(least, plan->search.lower_bound_step_seconds -
                                  longest_update(request.profile, ways.state.host) / replicas);
    if (!plan || (best && plan->prediction.step_seconds >= best->prediction.step_seconds)) continue;
    const int64_t nodes = best ? best->search.nodes : 0;
    best = std::move(plan);
    best->search.nodes += nodes;
  }
  if (!best) return best;
  SearchRecord& search = best->search;
  search.space += ", " + state_words(ways.state) +
                  (ways.state.shard ? " by owners of any shares" : "") +
                  (ways.state.host ? " on as few devices as fit" : "");
  search.lower_bound_step_seconds = std::min(least, search.step_seconds);
  MOTLEY_TRY_VOID(validate(*best, request.job.model));
  return best;
}

/// Who shares state may have no update to do.
Result<double> prove_with(const MemoryWays& ways, const PlanRequest& request,
                          const MemoryCounter& counter, double step) {
  const Recompute recompute = ways.recompute ? Recompute::kBlock : Recompute::kNone;
  if (ways.state == StateWays{}) return prove_pipelines(request, counter, recompute, step);
  Profile profile = with_less_updates(request, ways.state, 1);
  for (DeviceProfile& device : profile.devices) {
    if (ways.state.shard)
      device.update_seconds = 0;
    else if (ways.state.host && device.host_update_seconds > 0)
      device.update_seconds = std::min(device.update_seconds, device.host_update_seconds);
  }
  const PlanRequest without{.job = request.job,
                            .fleet = request.fleet,
                            .profile = profile,
                            .memory_headroom = request.memory_headroom,
                            .least_replicas = ways.state.shard ? kSharingReplicas.front() : 1};
  const MemoryCounter placing{counter.plan, without_state(counter.layers, ways.state)};
  return prove_pipelines(without, placing, recompute, step);
}

Result<std::optional<Plan>> share_state(const PlanRequest& request, const CountMemory& count,
                                        const Plan& plan, double below) {
  std::vector<const DeviceProfile*> devices;
  for (const DeviceProfile& device : request.profile.devices) devices.push_back(&device);
  // No plan of these devices gains more by it: weights may go beside another pass than gradients.
  const bool beside = plans_with_sums_beside(request) == PlansBeside::kAll;
  const double saved = longest_update(request.profile) - least_update_seconds(devices) +
                       (beside ? plan.prediction.communication_seconds : 0);
  // Ends of a single replica share what is tied.
  if ((plan.replicas.size() < 2 && !is_cut(plan)) || plan.prediction.step_seconds - saved >= below)
    return std::nullopt;
  MOTLEY_TRY(PlacedState placed, place_state(request, count, plan, {.shard = true}));
  if (!placed.fits) return std::nullopt;
  MOTLEY_TRY(Plan shared, plan_of(request, std::move(placed)));
  SearchRecord& search = shared.search;
  search.space += "; of the quickest, optimizer state sharded by owners of any shares";
  MOTLEY_TRY(const LeastSeconds least,
             least_seconds_of_pipelines(request));  // whatever updates take
  // Who owns nothing exchanges half of what it would with an even share; beside passes it may all
  // go.
  const double exchanged =
      std::min(search.lower_bound_step_seconds - least.computing, most_exchanged(request));
  const double others =
      search.lower_bound_step_seconds - std::max(0.0, exchanged) / (beside ? 1 : 2);
  search.lower_bound_step_seconds =
      std::min(shared.prediction.step_seconds, std::max(least.step, others - std::max(0.0, saved)));
  if (shared.prediction.step_seconds >= std::max(below, plan.prediction.step_seconds))
    return std::nullopt;
  shared.id = plan_id(shared);
  MOTLEY_TRY_VOID(validate(shared, request.job.model));
  return shared;
}

}  // namespace motley
