#include "scheduler/service/device_pools.h"

#include <algorithm>
#include <utility>

namespace motley {
namespace {

/// What a job can ask of a device, as one word.
std::string traits_of(const DeviceSpec& device) {
  return device.type + "\n" + std::to_string(static_cast<int>(device.kind)) + "\n" +
         std::to_string(device.memory.value_or(Bytes(-1)).value());
}

bool among(const std::vector<std::string>& ids, const std::string& id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

bool is_paced(const FleetSpec& fleet) {
  return std::any_of(fleet.devices.begin(), fleet.devices.end(),
                     [](const DeviceSpec& device) { return device.paced.has_value(); });
}

}  // namespace

DevicePools::DevicePools(FleetSpec fleet) : fleet_(std::move(fleet)) {
  for (const DeviceSpec& device : fleet_.devices)
    slots_.push_back(slot_for(device, DeviceAccess::kOpen));
  own_ = slots_.size();
}

DevicePools::Slot DevicePools::slot_for(const DeviceSpec& device, DeviceAccess access) {
  const auto [found, is_new] = pool_of_traits_.try_emplace(traits_of(device), types_.size());
  if (is_new) {
    types_.push_back(device.type);
    traits_.push_back(found->first);
  }
  const auto owner = owners_.find(device.id);
  return {found->second, access, owner == owners_.end() ? 0 : owner->second};
}

void DevicePools::set_owner(size_t device, int64_t owner) {
  owners_[fleet_.devices[device].id] = slots_[device].owner = owner;
}

std::optional<size_t> DevicePools::pool_of(const std::string& id) const {
  for (size_t i = 0; i < slots_.size(); ++i)
    if (fleet_.devices[i].id == id) return slots_[i].pool;
  return std::nullopt;
}

void DevicePools::put(const std::string& host, const FleetSpec& part, DeviceAccess access) {
  remove(host);
  if (!is_paced(fleet_)) {
    fleet_.clock = part.clock;
    fleet_.pace_flops = part.pace_flops;
  }
  // A host has its place whenever it comes: the same devices are then the same fleet.
  size_t at = own_;
  while (at < slots_.size() && fleet_.devices[at].host < host) ++at;
  for (const DeviceSpec& device : part.devices) {
    const auto place = static_cast<std::ptrdiff_t>(at++);
    fleet_.devices.insert(fleet_.devices.begin() + place, device);
    slots_.insert(slots_.begin() + place, slot_for(device, access));
  }
}

void DevicePools::remove(const std::string& host) {
  for (size_t i = slots_.size(); i-- > own_;) {
    if (fleet_.devices[i].host != host) continue;
    fleet_.devices.erase(fleet_.devices.begin() + static_cast<std::ptrdiff_t>(i));
    slots_.erase(slots_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

void DevicePools::set_access(const std::string& host, DeviceAccess access) {
  for (size_t i = 0; i < slots_.size(); ++i)
    if (fleet_.devices[i].host == host) slots_[i].access = access;
}

std::vector<Pool> DevicePools::pools() const {
  std::vector<Pool> pools;
  for (const std::string& type : types_) pools.push_back({type, 0});
  for (size_t i = 0; i < slots_.size(); ++i)
    if (slots_[i].access == DeviceAccess::kOpen || owner_of(i) != 0)
      ++pools[slots_[i].pool].devices;
  return pools;
}

Result<Alternative> DevicePools::demand(const JobSpec& job) const {
  FleetSpec there = fleet_;
  there.devices.clear();
  for (size_t i = 0; i < slots_.size(); ++i)
    if (slots_[i].access != DeviceAccess::kClosed) there.devices.push_back(fleet_.devices[i]);
  return demand(job, there);
}

Result<Unit> DevicePools::could_ever(const JobSpec& job) const {
  MOTLEY_TRY_VOID(demand(job, fleet_));
  return Unit{};
}

Result<Alternative> DevicePools::demand(const JobSpec& job, const FleetSpec& of) const {
  if (of.devices.empty())
    return fail(ErrorCode::kNoDevice, "the service has no devices", place_of(job, "resources"));
  MOTLEY_TRY(FleetSpec fitting, admitted(of, job));
  // A program of anybody's is started where the coordinator is, and nowhere else.
  if (job.is_program())
    std::erase_if(fitting.devices, [&](const DeviceSpec& device) { return !is_own(device); });
  if (fitting.devices.empty())
    return fail(ErrorCode::kNoDevice,
                "a program runs on the coordinator's own machine, which has no such device there",
                place_of(job, "run"));
  Alternative wanted;
  wanted.limit = none();
  for (const DeviceSpec& device : fitting.devices)
    ++wanted.limit[pool_of_traits_.at(traits_of(device))];
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

Alternative DevicePools::demand_held(int64_t owner) const {
  Alternative held;
  held.limit = held_by(owner);
  held.least = held.most = sum_of(held.limit);
  return held;
}

bool DevicePools::is_own(const DeviceSpec& device) const {
  const auto own = fleet_.devices.begin();
  return std::any_of(own, own + static_cast<std::ptrdiff_t>(own_),
                     [&](const DeviceSpec& other) { return other.host == device.host; });
}

std::vector<std::string> DevicePools::give(const PoolCounts& wanted, int64_t owner, bool own_only) {
  PoolCounts missing = wanted;
  std::vector<size_t> chosen;
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (!is_free(i) || missing[slots_[i].pool] == 0 || (own_only && i >= own_)) continue;
    --missing[slots_[i].pool];
    chosen.push_back(i);
  }
  std::vector<std::string> ids;
  if (sum_of(missing) > 0) return ids;
  for (const size_t device : chosen) {
    ids.push_back(fleet_.devices[device].id);
    set_owner(device, owner);
  }
  return ids;
}

void DevicePools::give(const std::vector<std::string>& ids, int64_t owner) {
  for (size_t i = 0; i < slots_.size(); ++i)
    if (among(ids, fleet_.devices[i].id)) set_owner(i, owner);
}

void DevicePools::free(int64_t owner) {
  std::erase_if(owners_, [&](const auto& entry) { return entry.second == owner; });
  for (Slot& slot : slots_)
    if (slot.owner == owner) slot.owner = 0;
}

PoolCounts DevicePools::held_by(int64_t owner) const {
  PoolCounts counts = none();
  for (size_t i = 0; i < slots_.size(); ++i)
    if (owner_of(i) == owner) ++counts[slots_[i].pool];
  return counts;
}

PoolCounts DevicePools::free_counts() const {
  PoolCounts counts = none();
  for (size_t i = 0; i < slots_.size(); ++i)
    if (is_free(i)) ++counts[slots_[i].pool];
  return counts;
}

PoolCounts DevicePools::closed_held_by(int64_t owner) const {
  PoolCounts counts = none();
  for (size_t i = 0; i < slots_.size(); ++i)
    if (owner_of(i) == owner && slots_[i].access != DeviceAccess::kOpen) ++counts[slots_[i].pool];
  return counts;
}

FleetSpec DevicePools::only(const std::vector<std::string>& ids) const {
  FleetSpec part = fleet_;
  std::erase_if(part.devices, [&](const DeviceSpec& device) { return !among(ids, device.id); });
  return part;
}

}  // namespace motley
