#include "planner/pipelines/stage_devices.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace motley {

StageDevices::StageDevices(const std::vector<DeviceGroup>& groups, const PipelineCosts& costs)
    : costs_(costs) {
  for (const DeviceGroup& group : groups) free_.push_back(group.devices);
}

bool StageDevices::take_shared(const std::vector<Pipeline>& pipelines) {
  std::vector<int> shared;
  for (const Pipeline& pipeline : pipelines)
    for (const PipelineStage& stage : pipeline.stages)
      if (costs_.tensor_set(stage.group) != nullptr) shared.push_back(stage.group);
  std::stable_sort(shared.begin(), shared.end(), [&](int a, int b) {
    return costs_.tensor_set(a)->size() > costs_.tensor_set(b)->size();
  });
  return std::all_of(shared.begin(), shared.end(), [&](int group) { return put_aside(group); });
}

bool StageDevices::put_aside(int group) {
  const std::vector<TensorSet::Member>& members = costs_.tensor_set(group)->members;
  std::map<std::string, std::vector<int>> there;  // by host, of each group
  std::map<std::string, size_t> all;
  for (size_t own = 0; own < free_.size(); ++own)
    for (const DeviceSpec* device : free_[own]) {
      there[device->host].resize(free_.size());
      ++there[device->host][own];
      ++all[device->host];
    }
  std::optional<std::string> best;
  for (auto& [host, counts] : there) {
    bool enough = true;
    for (const TensorSet::Member& member : members)
      enough = --counts[static_cast<size_t>(member.group)] >= 0 && enough;
    if (enough && (!best || all[host] < all[*best])) best = host;
  }
  if (!best) return false;
  Free taken;
  for (const TensorSet::Member& member : members) {
    Free& free = free_[static_cast<size_t>(member.group)];
    const auto device = std::find_if(free.begin(), free.end(),
                                     [&](const DeviceSpec* one) { return one->host == *best; });
    taken.push_back(*device);
    free.erase(device);
  }
  aside_.emplace_back(group, std::move(taken));
  return true;
}

std::vector<const DeviceSpec*> StageDevices::take(int group) {
  if (costs_.tensor_set(group) == nullptr) {
    Free& free = free_[static_cast<size_t>(group)];
    const DeviceSpec* const first = free.front();
    free.erase(free.begin());
    return {first};
  }
  const auto found = std::find_if(aside_.begin(), aside_.end(),
                                  [&](const auto& one) { return one.first == group; });
  Free taken = std::move(found->second);
  aside_.erase(found);
  return taken;
}

std::vector<const DeviceSpec*> StageDevices::left() const {
  std::vector<const DeviceSpec*> left;
  for (const Free& free : free_) left.insert(left.end(), free.begin(), free.end());
  return left;
}

}  // namespace motley
