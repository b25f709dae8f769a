#include "planner/pipelines/placement.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>

namespace motley {
namespace {

using Devices = std::vector<const DeviceSpec*>;

/// Devices that nobody has yet, by group; the last are taken first.
class Host {
 public:
  explicit Host(size_t groups) : free_(groups) {}

  void add(size_t group, const DeviceSpec* device) {
    free_[group].insert(free_[group].begin(), device);
  }
  std::vector<int> counts() const {
    std::vector<int> counts;
    for (const Devices& devices : free_) counts.push_back(static_cast<int>(devices.size()));
    return counts;
  }
  size_t left(size_t group) const { return free_[group].size(); }
  bool has_room(const std::vector<size_t>& needs) const {
    for (size_t group = 0; group < needs.size(); ++group)
      if (needs[group] > left(group)) return false;
    return true;
  }
  const DeviceSpec* take(size_t group) {
    const DeviceSpec* const device = free_[group].back();
    free_[group].pop_back();
    return device;
  }

 private:
  std::vector<Devices> free_;
};

std::vector<Host> hosts_of(const std::vector<DeviceGroup>& groups) {
  std::map<std::string, size_t> numbers;
  std::vector<Host> hosts;
  for (size_t group = 0; group < groups.size(); ++group)
    for (const DeviceSpec* device : groups[group].devices) {
      const auto [found, is_new] = numbers.emplace(device->host, hosts.size());
      if (is_new) hosts.emplace_back(groups.size());
      hosts[found->second].add(group, device);
    }
  return hosts;
}

/// Groups of the devices of a stage.
std::vector<size_t> groups_of_stage(const PipelineCosts& costs, const PipelineStage& stage) {
  const TensorSet* const set = costs.tensor_set(stage.group);
  if (set == nullptr) return {static_cast<size_t>(stage.group)};
  std::vector<size_t> members;
  for (const TensorSet::Member& member : set->members)
    members.push_back(static_cast<size_t>(member.group));
  return members;
}

class Placement {
 public:
  Placement(const std::vector<DeviceGroup>& groups, const PipelineCosts& costs)
      : costs_(costs), groups_(groups.size()), hosts_(hosts_of(groups)) {}

  size_t devices(const Pipeline& pipeline) const {
    const std::vector<size_t> needs = needs_of(pipeline.stages);
    return std::accumulate(needs.begin(), needs.end(), size_t{0});
  }

  /// From the first host with room for all, else stage by stage, those that are shared first, from
  /// the first with room for that. Nothing where none has.
  PlacedStages take(const Pipeline& pipeline) {
    const Hosts all{0, hosts_.size()};
    PlacedStages placed(pipeline.stages.size());
    Host* const room = first_with_room(all, needs_of(pipeline.stages));
    for (const bool shared : {true, false})
      for (size_t s = 0; s < placed.size(); ++s) {
        const PipelineStage& stage = pipeline.stages[s];
        if ((costs_.tensor_set(stage.group) != nullptr) != shared) continue;
        Host* const host = room != nullptr ? room : first_with_room(all, needs_of({stage}));
        if (host == nullptr) return {};
        placed[s] = take(stage, host);
      }
    return placed;
  }

  /// Each over the first hosts, so many together, that have room for all its stages.
  std::vector<PlacedRow> take_over(const std::vector<const Pipeline*>& pipelines, size_t hosts,
                                   HostOrder order) {
    std::vector<PlacedRow> rows;
    for (const Pipeline* pipeline : pipelines) {
      const std::vector<size_t> needs = needs_of(pipeline->stages);
      Hosts some{0, std::min(hosts, hosts_.size())};
      while (some.begin < some.end && !has_room(some, needs))
        some = {some.end, std::min(some.end + hosts, hosts_.size())};
      rows.push_back(take_over(*pipeline, some, order));
      if (rows.back().groups.empty()) return {};
    }
    return rows;
  }

 private:
  struct Hosts {
    size_t begin = 0, end = 0;
  };

  bool has_room(const Hosts& some, const std::vector<size_t>& needs) const {
    for (size_t group = 0; group < needs.size(); ++group) {
      size_t left = 0;
      for (size_t host = some.begin; host < some.end; ++host) left += hosts_[host].left(group);
      if (needs[group] > left) return false;
    }
    return true;
  }

  /// As many stages of each kind on each host as can be, in the order that they have. Nothing where
  /// no host has the devices that share a stage.
  PlacedRow take_over(const Pipeline& pipeline, const Hosts& some, HostOrder order) {
    struct Taken {
      std::map<int, int> kinds;  ///< stages by group
      int stages = 0;
      PlacedRow row;
    };
    std::vector<Taken> taken(some.end - some.begin);
    for (const PipelineStage& stage : pipeline.stages) {
      Taken* best = nullptr;
      for (Taken& own : taken) {
        const Host& host = hosts_[some.begin + static_cast<size_t>(&own - taken.data())];
        if (!host.has_room(needs_of({stage}))) continue;
        if (best == nullptr || std::pair(own.kinds[stage.group], own.stages) <
                                   std::pair(best->kinds[stage.group], best->stages))
          best = &own;
      }
      if (best == nullptr) return {};
      ++best->kinds[stage.group];
      ++best->stages;
      best->row.groups.push_back(stage.group);
      best->row.stages.push_back(
          take(stage, &hosts_[some.begin + static_cast<size_t>(best - taken.data())]));
    }
    if (order == HostOrder::kRing)
      std::rotate(
          taken.begin(),
          std::max_element(taken.begin(), taken.end(),
                           [](const Taken& a, const Taken& b) { return a.stages < b.stages; }),
          taken.end());
    PlacedRow row;
    for (Taken& own : taken) {
      row.groups.insert(row.groups.end(), own.row.groups.begin(), own.row.groups.end());
      row.stages.insert(row.stages.end(), own.row.stages.begin(), own.row.stages.end());
    }
    if (order == HostOrder::kRing) {
      const int turned = taken.front().stages / 2;
      std::rotate(row.groups.begin(), row.groups.begin() + turned, row.groups.end());
      std::rotate(row.stages.begin(), row.stages.begin() + turned, row.stages.end());
    }
    return row;
  }

  Devices take(const PipelineStage& stage, Host* host) const {
    Devices devices;
    for (const size_t group : groups_of_stage(costs_, stage)) devices.push_back(host->take(group));
    return devices;
  }

  std::vector<size_t> needs_of(const std::vector<PipelineStage>& stages) const {
    std::vector<size_t> needs(groups_, 0);
    for (const PipelineStage& stage : stages)
      for (const size_t group : groups_of_stage(costs_, stage)) ++needs[group];
    return needs;
  }

  Host* first_with_room(const Hosts& some, const std::vector<size_t>& needs) {
    for (size_t host = some.begin; host < some.end; ++host)
      if (hosts_[host].has_room(needs)) return &hosts_[host];
    return nullptr;
  }

  const PipelineCosts& costs_;
  size_t groups_;
  std::vector<Host> hosts_;
};

/// In this order; nothing where one has no room.
std::vector<PlacedStages> place_in_order(const std::vector<DeviceGroup>& groups,
                                         const PipelineCosts& costs,
                                         const std::vector<const Pipeline*>& pipelines,
                                         const std::vector<size_t>& order) {
  Placement placement(groups, costs);
  std::vector<PlacedStages> placed(pipelines.size());
  for (const size_t i : order) {
    placed[i] = placement.take(*pipelines[i]);
    if (placed[i].empty()) return {};
  }
  return placed;
}

size_t over_several_hosts(const std::vector<PlacedStages>& placed) {
  return static_cast<size_t>(
      std::count_if(placed.begin(), placed.end(), [](const PlacedStages& stages) {
        const std::string& host = stages.front().front()->host;
        return std::any_of(stages.begin(), stages.end(), [&](const Devices& devices) {
          return std::any_of(devices.begin(), devices.end(),
                             [&](const DeviceSpec* device) { return device->host != host; });
        });
      }));
}

}  // namespace

std::vector<std::vector<int>> devices_of_hosts(const std::vector<DeviceGroup>& groups) {
  std::vector<std::vector<int>> counts;
  for (const Host& host : hosts_of(groups)) counts.push_back(host.counts());
  return counts;
}

std::vector<PlacedStages> place_on_hosts(const std::vector<DeviceGroup>& groups,
                                         const PipelineCosts& costs,
                                         const std::vector<const Pipeline*>& pipelines) {
  const Placement placement(groups, costs);
  std::vector<size_t> order(pipelines.size()), sizes;
  std::iota(order.begin(), order.end(), size_t{0});
  std::vector<PlacedStages> as_listed = place_in_order(groups, costs, pipelines, order);
  for (const Pipeline* pipeline : pipelines) sizes.push_back(placement.devices(*pipeline));
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return sizes[a] > sizes[b]; });
  std::vector<PlacedStages> placed = place_in_order(groups, costs, pipelines, order);
  const bool listed_is_better =
      !as_listed.empty() &&
      (placed.empty() || over_several_hosts(as_listed) < over_several_hosts(placed));
  return listed_is_better ? as_listed : placed;
}

std::vector<PlacedRow> place_over_hosts(const std::vector<DeviceGroup>& groups,
                                        const PipelineCosts& costs,
                                        const std::vector<const Pipeline*>& pipelines, size_t hosts,
                                        HostOrder order) {
  return Placement(groups, costs).take_over(pipelines, hosts, order);
}

}  // namespace motley
