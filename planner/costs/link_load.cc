#include "planner/costs/link_load.h"

#include <algorithm>

namespace motley {

void LinkLoad::add(const Plan& plan, int replica) {
  const std::vector<StagePlan>& stages = plan.replicas[static_cast<size_t>(replica)].stages;
  const auto samples = static_cast<double>(samples_of(plan, replica).count);
  for (size_t s = 0; s + 1 < stages.size(); ++s) {
    add_ways(stages[s], stages[s + 1], samples);
    add_ways(stages[s + 1], stages[s], samples);
  }
}

/// Each rank of a stage receives everything, from one rank of the other in turn.
void LinkLoad::add_ways(const StagePlan& from, const StagePlan& to, double samples) {
  const int element = reduced_bytes(carried(from.precision, to.precision));
  const double bytes = samples * model_.context * model_.width * element;
  for (size_t member = 0; member < to.ranks.size(); ++member) {
    const auto host_of = [&](Rank rank) {
      return ranks_.all[static_cast<size_t>(rank.value())].host;
    };
    const int sender = host_of(from.ranks[member % from.ranks.size()]);
    const int receiver = host_of(to.ranks[member]);
    const LinkProfile* const link =
        sender == receiver ? nullptr : ranks_.links.between(sender, receiver);
    if (link == nullptr) continue;
    hosts_.resize(std::max(hosts_.size(), static_cast<size_t>(std::max(sender, receiver)) + 1));
    const Nanos time = nanos_of_seconds(bytes / link->bytes_per_second);
    hosts_[static_cast<size_t>(sender)].sending += time;
    hosts_[static_cast<size_t>(receiver)].receiving += time;
  }
}

Nanos LinkLoad::busiest() const {
  Nanos longest{0};
  for (const Busy& host : hosts_) longest = std::max({longest, host.sending, host.receiving});
  return longest;
}

}  // namespace motley
