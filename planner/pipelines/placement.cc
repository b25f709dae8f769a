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
  bool has_room(const std::vector<size_t>& needs) const {
    for (size_t group = 0; group < needs.size(); ++group)
      if (needs[group] > free_[group].size()) return false;
    return true;
  }
  const DeviceSpec* take(size_t group) {
    if (free_[group].empty()) return nullptr;
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

std::vector<size_t> needs_of(const Pipeline& pipeline, size_t groups) {
  std::vector<size_t> needs(groups, 0);
  for (const PipelineStage& stage : pipeline.stages) ++needs[static_cast<size_t>(stage.group)];
  return needs;
}

/// From the first host with room for all, else from the first with a device for each stage.
Devices take(const Pipeline& pipeline, size_t groups, std::vector<Host>* hosts) {
  const std::vector<size_t> needs = needs_of(pipeline, groups);
  const auto room = std::find_if(hosts->begin(), hosts->end(),
                                 [&](const Host& host) { return host.has_room(needs); });
  Devices devices;
  for (const PipelineStage& stage : pipeline.stages) {
    const auto group = static_cast<size_t>(stage.group);
    const DeviceSpec* device = room == hosts->end() ? nullptr : room->take(group);
    for (auto host = hosts->begin(); device == nullptr && host != hosts->end(); ++host)
      device = host->take(group);
    devices.push_back(device);
  }
  return devices;
}

}  // namespace

std::vector<std::vector<const DeviceSpec*>> place_on_hosts(
    const std::vector<DeviceGroup>& groups, const std::vector<const Pipeline*>& pipelines) {
  std::vector<Host> hosts = hosts_of(groups);
  std::vector<size_t> order(pipelines.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return pipelines[a]->stages.size() > pipelines[b]->stages.size();
  });
  std::vector<Devices> placed(pipelines.size());
  for (const size_t i : order) placed[i] = take(*pipelines[i], groups.size(), &hosts);
  return placed;
}

}  // namespace motley
