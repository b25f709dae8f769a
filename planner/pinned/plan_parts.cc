#include "planner/pinned/plan_parts.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <utility>

namespace motley {

void append_replica(ReplicaPlan replica, const std::vector<RankPlacement>& ranks, Plan* plan) {
  for (StagePlan& stage : replica.stages)
    for (Rank& rank : stage.ranks) {
      plan->ranks.push_back(ranks[static_cast<size_t>(rank.value())]);
      rank = Rank(plan->world_size() - 1);
    }
  plan->replicas.push_back(std::move(replica));
}

void number_as_in(const FleetSpec& fleet, Plan* plan) {
  std::map<std::string, size_t> place;
  for (const DeviceSpec& device : fleet.devices) place.emplace(device.id, place.size());
  std::vector<size_t> order(plan->ranks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return place.at(plan->ranks[a].device) < place.at(plan->ranks[b].device);
  });
  std::vector<int> number(order.size());
  std::vector<RankPlacement> ranks;
  for (const size_t rank : order) {
    number[rank] = static_cast<int>(ranks.size());
    ranks.push_back(plan->ranks[rank]);
  }
  plan->ranks = std::move(ranks);
  for (ReplicaPlan& replica : plan->replicas)
    for (StagePlan& stage : replica.stages)
      for (Rank& rank : stage.ranks) rank = Rank(number[static_cast<size_t>(rank.value())]);
}

}  // namespace motley
