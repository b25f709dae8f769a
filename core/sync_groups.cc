#include "core/sync_groups.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/json_place.h"

namespace motley {
namespace {

using Groups = std::vector<std::vector<std::string>>;

/// In the order of their first ranks.
std::vector<std::string> hosts_of(const Plan& plan) {
  std::vector<std::string> hosts;
  for (const RankPlacement& rank : plan.ranks)
    if (std::find(hosts.begin(), hosts.end(), rank.host) == hosts.end()) hosts.push_back(rank.host);
  return hosts;
}

/// Hosts that come to be one group.
class Joining {
 public:
  explicit Joining(std::vector<std::string> hosts) : hosts_(std::move(hosts)) {
    for (const std::string& host : hosts_) number_.emplace(host, number_.size());
  }
  void join(const std::string& a, const std::string& b) {
    const auto at_a = number_.find(a), at_b = number_.find(b);
    if (at_a == number_.end() || at_b == number_.end()) return;
    const auto [first, second] = std::minmax({at_a->second, at_b->second});
    for (auto& [host, group] : number_)
      if (group == second) group = first;
  }
  Groups groups() const {
    std::map<size_t, std::vector<std::string>> members;  // by the number of the first of them
    for (const std::string& host : hosts_) members[number_.at(host)].push_back(host);
    Groups groups;
    for (auto& [first, group] : members) groups.push_back(std::move(group));
    return groups;
  }

 private:
  const std::vector<std::string> hosts_;
  std::map<std::string, size_t> number_;
};

std::string host_of(const Plan& plan, Rank rank) {
  return plan.ranks[static_cast<size_t>(rank.value())].host;
}

Groups joined_hosts(const Plan& plan) {
  Joining joining(hosts_of(plan));
  for (const LinkProfile& link : plan.links)
    if (link.bytes_per_second > kSlowLink) joining.join(link.between[0], link.between[1]);
  for (const ReplicaPlan& replica : plan.replicas)
    for (const StagePlan& stage : replica.stages)
      for (const Rank rank : stage.ranks)
        joining.join(host_of(plan, replica.stages.front().ranks.front()), host_of(plan, rank));
  return joining.groups();
}

std::map<std::string, int> group_of_hosts(const Plan& plan) {
  std::map<std::string, int> numbers;
  const Groups groups = sync_groups(plan);
  for (size_t group = 0; group < groups.size(); ++group)
    for (const std::string& host : groups[group]) numbers[host] = static_cast<int>(group);
  return numbers;
}

int group_of_replica(const ReplicaPlan& replica, const std::vector<int>& group_of_rank) {
  return group_of_rank[static_cast<size_t>(replica.stages.front().ranks.front().value())];
}

Result<Unit> check_groups_named(const Plan& plan) {
  const std::vector<std::string> hosts = hosts_of(plan);
  std::set<std::string> named;
  for (size_t i = 0; i < plan.sync.groups.size(); ++i) {
    const std::string at = "/sync/groups/" + std::to_string(i);
    if (plan.sync.groups[i].empty()) return invalid_at(at, "the group has no hosts");
    for (const std::string& host : plan.sync.groups[i]) {
      if (std::find(hosts.begin(), hosts.end(), host) == hosts.end())
        return invalid_at(at, "the plan has no rank on host " + host);
      if (!named.insert(host).second) return invalid_at(at, "host " + host + " is named twice");
    }
  }
  for (const std::string& host : hosts)
    if (!named.contains(host)) return invalid_at("/sync/groups", "host " + host + " is in none");
  return Unit{};
}

Result<Unit> check_replicas_within(const Plan& plan) {
  const std::vector<int> groups = group_of_ranks(plan);
  for (size_t i = 0; i < plan.replicas.size(); ++i) {
    const Rank first = plan.replicas[i].stages.front().ranks.front();
    for (const StagePlan& stage : plan.replicas[i].stages)
      for (const Rank rank : stage.ranks)
        if (groups[static_cast<size_t>(rank.value())] != groups[static_cast<size_t>(first.value())])
          return invalid_at("/replicas/" + std::to_string(i),
                            "hosts " + host_of(plan, first) + " and " + host_of(plan, rank) +
                                " are in groups that average every " +
                                std::to_string(plan.sync.across) +
                                " steps: a replica lies within one");
  }
  return Unit{};
}

/// The ranks of `ranks` and what is theirs.
Plan plan_of(const Plan& plan, const std::vector<int>& ranks, const std::vector<int>& groups) {
  Plan part = plan;
  part.sync = {};
  part.prediction = {};
  part.ranks.clear();
  part.replicas.clear();
  part.global_batch = 0;
  std::map<Rank, Rank> renumbered;
  std::set<std::string> hosts;
  for (const int rank : ranks) {
    renumbered[Rank(rank)] = Rank(part.world_size());
    part.ranks.push_back(plan.ranks[static_cast<size_t>(rank)]);
    hosts.insert(part.ranks.back().host);
  }
  for (size_t i = 0; i < plan.replicas.size(); ++i) {
    if (group_of_replica(plan.replicas[i], groups) != groups[static_cast<size_t>(ranks.front())])
      continue;
    ReplicaPlan& replica = part.replicas.emplace_back(plan.replicas[i]);
    part.global_batch += samples_of(plan, static_cast<int>(i)).count;
    for (StagePlan& stage : replica.stages)
      for (Rank& rank : stage.ranks) rank = renumbered.at(rank);
  }
  std::erase_if(part.links, [&](const LinkProfile& link) {
    return !hosts.contains(link.between[0]) || !hosts.contains(link.between[1]);
  });
  return part;
}

}  // namespace

Groups sync_groups(const Plan& plan) {
  return plan.sync.groups.empty() ? joined_hosts(plan) : plan.sync.groups;
}

bool trains_apart(const Plan& plan) { return plan.sync.across > 1 && sync_groups(plan).size() > 1; }

std::vector<int> group_of_ranks(const Plan& plan) {
  std::vector<int> groups(plan.ranks.size(), 0);
  if (!trains_apart(plan)) return groups;
  const auto of_hosts = group_of_hosts(plan);
  for (size_t rank = 0; rank < groups.size(); ++rank)
    groups[rank] = of_hosts.at(plan.ranks[rank].host);
  return groups;
}

GroupPart group_part(const Plan& plan, const ModelSpec& model, Rank rank) {
  GroupPart part;
  const std::vector<int> groups = group_of_ranks(plan);
  for (int other = 0; other < plan.world_size(); ++other) {
    if (groups[static_cast<size_t>(other)] != groups[static_cast<size_t>(rank.value())]) continue;
    if (other == rank.value()) part.self = Rank(static_cast<int>(part.ranks.size()));
    part.ranks.push_back(other);
  }
  if (std::ssize(part.ranks) == std::ssize(plan.ranks)) {
    part.plan = plan;
    return part;
  }
  part.plan = plan_of(plan, part.ranks, groups);
  part.plan.owners = even_ownership(part.plan, model);
  part.share = static_cast<double>(part.plan.global_batch) / plan.global_batch;
  return part;
}

Result<Unit> check_sync(const Plan& plan) {
  if (!plan.sync.groups.empty()) MOTLEY_TRY_VOID(check_groups_named(plan));
  if (plan.sync.across > 1 && plan.numerics == Numerics::kExact)
    return invalid_at("/sync/across", "numerics: exact excludes averages every so many steps");
  if (!trains_apart(plan)) return Unit{};
  if (plan.compression.on())
    return invalid_at("/compression/codec", "groups that average send each other no gradients");
  if (plan.shard_optimizer)
    return invalid_at("/shard_optimizer", "groups that average hold all optimizer state each");
  return check_replicas_within(plan);
}

}  // namespace motley
