#include "scheduler/service/device_pools.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace motley {
namespace {

/// What a job can ask of a device.
auto traits_of(const DeviceSpec& device) {
  return std::tuple(device.type, device.kind, device.memory.value_or(Bytes(-1)));
}

bool among(const std::vector<std::string>& ids, const std::string& id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

DevicePools::DevicePools(FleetSpec fleet)
    : fleet_(std::move(fleet)), owners_(fleet_.devices.size(), 0) {
  std::map<decltype(traits_of(fleet_.devices.front())), size_t> known;
  for (const DeviceSpec& device : fleet_.devices) {
    const auto [found, is_new] = known.try_emplace(traits_of(device), pools_.size());
    if (is_new) pools_.push_back({device.type, 0});
    pool_of_.push_back(found->second);
    ++pools_[found->second].devices;
  }
}

Result<Alternative> DevicePools::demand(const JobSpec& job) const {
  MOTLEY_TRY(const FleetSpec fitting, admitted(fleet_, job));
  Alternative wanted;
  wanted.limit.assign(pools_.size(), 0);
  for (size_t i = 0; i < fleet_.devices.size(); ++i)
    if (fitting.find(fleet_.devices[i].id) != nullptr) ++wanted.limit[pool_of_[i]];
  wanted.mix = job.devices.mix;
  // Of one type only: as many as the most common one has.
  const int all = wanted.mix ? sum_of(wanted.limit)
                             : *std::max_element(wanted.limit.begin(), wanted.limit.end());
  wanted.least = job.devices.count ? std::max(1, job.devices.count->low) : all;
  wanted.most = job.devices.count ? std::min(all, job.devices.count->high) : all;
  if (wanted.least > all)
    return fail(ErrorCode::kNoDevice,
                "the job asks for " + std::to_string(wanted.least) +
                    " devices of one type and the service has " + std::to_string(all),
                place_of(job, "resources.devices.count"));
  return wanted;
}

std::vector<std::string> DevicePools::give(const PoolCounts& wanted, int64_t owner) {
  PoolCounts missing = wanted;
  std::vector<size_t> chosen;
  for (size_t i = 0; i < owners_.size(); ++i) {
    if (owners_[i] != 0 || missing[pool_of_[i]] == 0) continue;
    --missing[pool_of_[i]];
    chosen.push_back(i);
  }
  std::vector<std::string> ids;
  if (sum_of(missing) > 0) return ids;
  for (const size_t device : chosen) {
    owners_[device] = owner;
    ids.push_back(fleet_.devices[device].id);
  }
  return ids;
}

void DevicePools::give(const std::vector<std::string>& ids, int64_t owner) {
  for (size_t i = 0; i < owners_.size(); ++i)
    if (among(ids, fleet_.devices[i].id)) owners_[i] = owner;
}

void DevicePools::free(int64_t owner) {
  std::replace(owners_.begin(), owners_.end(), owner, int64_t{0});
}

PoolCounts DevicePools::held_by(int64_t owner) const {
  PoolCounts counts(pools_.size(), 0);
  for (size_t i = 0; i < owners_.size(); ++i)
    if (owners_[i] == owner) ++counts[pool_of_[i]];
  return counts;
}

PoolCounts DevicePools::free_counts() const { return held_by(0); }

FleetSpec DevicePools::only(const std::vector<std::string>& ids) const {
  FleetSpec part = fleet_;
  std::erase_if(part.devices, [&](const DeviceSpec& device) { return !among(ids, device.id); });
  return part;
}

}  // namespace motley
