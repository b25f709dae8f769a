#include "planner/questions/device_sets.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/spec/pin_fault.h"
#include "planner/pipelines/pipeline_costs.h"

namespace motley {
namespace {

constexpr size_t kMostSetsPlanned = 64;
constexpr size_t kFewHosts = 8;
/// Any number that is no larger may be what the batch divides well by.
constexpr int kEachBelow = 16;

void add_once(const std::string& name, std::vector<std::string>* names) {
  if (std::find(names->begin(), names->end(), name) == names->end()) names->push_back(name);
}

bool has_any(const DeviceSets::Counts& counts) {
  return std::any_of(counts.begin(), counts.end(), [](int count) { return count > 0; });
}

}  // namespace

Result<DeviceSets> DeviceSets::make(const PlanRequest& request) {
  DeviceSets sets(request.fleet);
  std::set<std::string> pinned;
  for (const auto& [key, device] : pinned_devices(request.job.pin)) pinned.insert(device);
  const auto rank = [&](const DeviceSpec* device) {
    return std::pair(!pinned.contains(device->id), device->price_per_hour);
  };
  MOTLEY_TRY(const std::vector<DeviceGroup> groups, group_devices(request, GroupBy::kHost));
  for (const DeviceGroup& alike : groups) {
    const DeviceSpec& first = *alike.devices.front();
    Group& group = sets.groups_.emplace_back(Group{first.type, first.host, alike.devices});
    std::stable_sort(group.devices.begin(), group.devices.end(),
                     [&](const DeviceSpec* a, const DeviceSpec* b) { return rank(a) < rank(b); });
    for (const DeviceSpec* device : group.devices) group.pinned += pinned.contains(device->id);
    add_once(group.type, &sets.types_);
    add_once(group.host, &sets.hosts_);
  }
  return sets;
}

std::vector<DeviceSets::Counts> DeviceSets::every() const {
  const Counts all = whole();
  std::vector<Counts> sets;
  Counts counts = all;
  while (has_any(counts)) {
    if (sets.size() == kMostSetsPlanned) return {};
    sets.push_back(counts);
    size_t group = 0;
    while (counts[group] == 0) counts[group] = all[group], ++group;
    --counts[group];
  }
  return sets;
}

std::vector<DeviceSets::Counts> DeviceSets::beginnings() const {
  std::vector<Counts> sets;
  for (const std::vector<std::string>& types : sets_of_types(types_)) {
    Counts& counts = sets.emplace_back(whole());
    for (size_t i = 0; i < groups_.size(); ++i)
      if (std::find(types.begin(), types.end(), groups_[i].type) == types.end()) counts[i] = 0;
  }
  for (const std::string& type : types_) {
    Counts one(groups_.size(), 0);
    const auto group = std::find_if(groups_.begin(), groups_.end(),
                                    [&](const Group& of) { return of.type == type; });
    one[static_cast<size_t>(group - groups_.begin())] = 1;
    sets.push_back(std::move(one));
  }
  for (Counts& counts : sets) keep_pinned(&counts);
  return sets;
}

std::vector<DeviceSets::Counts> DeviceSets::smaller(const Counts& counts) const {
  std::vector<Counts> sets;
  const auto add = [&](Counts fewer) {
    keep_pinned(&fewer);
    if (fewer != counts && has_any(fewer)) sets.push_back(std::move(fewer));
  };
  for (const std::string& type : types_) add(without(counts, type, count_of(counts, type)));
  for (size_t host = 0; hosts_.size() <= kFewHosts && host < hosts_.size(); ++host) {
    Counts fewer = counts;
    for (size_t i = 0; i < groups_.size(); ++i)
      if (groups_[i].host == hosts_[host]) fewer[i] = 0;
    add(std::move(fewer));
  }
  for (const std::string& type : types_)
    for (int less = count_of(counts, type) / 2; less > 0;
         less = less <= kEachBelow ? less - 1 : less / 2)
      add(without(counts, type, less));
  return sets;
}

FleetSpec DeviceSets::fleet(const Counts& counts) const {
  std::set<std::string> kept;
  for (size_t i = 0; i < groups_.size(); ++i)
    for (int device = 0; device < counts[i]; ++device)
      kept.insert(groups_[i].devices[static_cast<size_t>(device)]->id);
  return part_of(*fleet_, [&](const DeviceSpec& device) { return kept.contains(device.id); });
}

DeviceSets::Counts DeviceSets::used_by(const Plan& plan) const {
  Counts counts(groups_.size(), 0);
  for (const RankPlacement& rank : plan.ranks)
    for (size_t i = 0; i < groups_.size(); ++i)
      counts[i] += static_cast<int>(
          std::count_if(groups_[i].devices.begin(), groups_[i].devices.end(),
                        [&](const DeviceSpec* device) { return device->id == rank.device; }));
  return counts;
}

std::string DeviceSets::words(const Counts& counts) const {
  std::vector<std::string> parts;
  for (const std::string& type : types_)
    if (const int count = count_of(counts, type); count > 0)
      parts.push_back(std::to_string(count) + " " + type);
  return listed_types(parts);
}

DeviceSets::Counts DeviceSets::whole() const {
  Counts counts;
  for (const Group& group : groups_) counts.push_back(static_cast<int>(group.devices.size()));
  return counts;
}

/// Taken where fewest are left of it.
DeviceSets::Counts DeviceSets::without(Counts counts, const std::string& type, int devices) const {
  while (devices > 0) {
    size_t fewest = groups_.size();
    for (size_t i = 0; i < groups_.size(); ++i)
      if (groups_[i].type == type && counts[i] > 0 &&
          (fewest == groups_.size() || counts[i] <= counts[fewest]))
        fewest = i;
    const int taken = std::min(devices, counts[fewest]);
    counts[fewest] -= taken;
    devices -= taken;
  }
  return counts;
}

int DeviceSets::count_of(const Counts& counts, const std::string& type) const {
  int count = 0;
  for (size_t i = 0; i < groups_.size(); ++i)
    if (groups_[i].type == type) count += counts[i];
  return count;
}

void DeviceSets::keep_pinned(Counts* counts) const {
  for (size_t i = 0; i < groups_.size(); ++i)
    (*counts)[i] = std::max((*counts)[i], groups_[i].pinned);
}

}  // namespace motley
