#include "scheduler/service/device_pools.h"

#include <algorithm>
#include <iomanip>
#include <set>
#include <sstream>
#include <string_view>
#include <tuple>
#include <utility>

namespace motley {
namespace {

constexpr size_t kMostDemands = 10'000;  // of one queue rarely more than a few are different

/// What a job can ask of a device, and what its speed depends on besides, as one word.
std::string traits_of(const DeviceSpec& device) {
  std::ostringstream text;
  text << device.type << "\n"
       << static_cast<int>(device.kind) << "\n"
       << device.memory.value_or(Bytes(-1)).value();
  if (device.kind == DeviceKind::kCpu) text << "\nthreads " << device.threads;
  if (device.share) text << "\nshare " << device.share->sms;
  if (const auto& pace = device.paced)
    text << "\npaced " << pace->speed << " " << pace->overhead.value() << " " << pace->half_batch;
  return std::move(text).str();
}

bool among(const std::vector<std::string>& ids, const std::string& id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

bool is_paced(const FleetSpec& fleet) {
  return std::any_of(fleet.devices.begin(), fleet.devices.end(),
                     [](const DeviceSpec& device) { return device.paced.has_value(); });
}

std::vector<DeviceFilter> filters_of(const JobSpec& job) {
  return job.any_of.empty() ? std::vector{job.devices} : job.any_of;
}

/// All of a job that its demand depends on, as text.
std::string wishes_of(const JobSpec& job) {
  std::ostringstream text;
  for (const DeviceFilter& filter : filters_of(job)) {
    text << "\n"
         << filter.key << " " << filter.mix << " " << filter.memory.low.value() << " "
         << filter.memory.high.value();
    if (filter.count) text << " " << filter.count->low << " " << filter.count->high;
    for (const std::string& type : filter.types) text << " " << std::quoted(type);
    for (const auto& [type, most] : filter.limits) text << " " << std::quoted(type) << ":" << most;
  }
  for (const std::string& id : job.pin.leave_out) text << "\n" << std::quoted(id);
  // Of devices that are limited those that are pinned come first.
  for (const PinnedReplica& replica : job.pin.replicas)
    for (const PinnedStage& stage : replica.stages)
      for (const std::string& id : stage.devices) text << "\n" << std::quoted(id);
  return std::move(text).str();
}

std::string reason_of(const JobSpec& job, const DeviceFilter& filter, const Error& error) {
  return job.any_of.empty() ? error.message : filter.key + ": " + error.message;
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
  remove(host);  // and what was known of all
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
  demands_.clear();
  for (size_t i = slots_.size(); i-- > own_;) {
    if (fleet_.devices[i].host != host) continue;
    fleet_.devices.erase(fleet_.devices.begin() + static_cast<std::ptrdiff_t>(i));
    slots_.erase(slots_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

void DevicePools::set_access(const std::string& host, DeviceAccess access) {
  demands_.clear();
  for (size_t i = 0; i < slots_.size(); ++i)
    if (fleet_.devices[i].host == host) slots_[i].access = access;
}

void DevicePools::set_aside(const std::vector<std::string>& ids) {
  demands_.clear();
  aside_.insert(ids.begin(), ids.end());
}

void DevicePools::take_back(const std::vector<std::string>& ids) {
  demands_.clear();
  for (const std::string& id : ids)
    if (const auto found = aside_.find(id); found != aside_.end()) aside_.erase(found);
}

std::vector<Pool> DevicePools::pools() const {
  std::vector<Pool> pools;
  for (const std::string& type : types_) pools.push_back({type, 0});
  for (size_t i = 0; i < slots_.size(); ++i)
    if (access_of(i) == DeviceAccess::kOpen || owner_of(i) != 0) ++pools[slots_[i].pool].devices;
  return pools;
}

Demand DevicePools::demand(const JobSpec& job, const Unfit& unfit) const {
  if (!unfit.pools.empty() || !unfit.sets.empty() || !unfit.devices.empty())
    return find_demand(job, unfit);
  if (demands_.size() == kMostDemands) demands_.clear();
  const auto [known, is_new] = demands_.try_emplace(wishes_of(job));
  if (is_new) known->second = find_demand(job, unfit);
  return known->second;
}

Demand DevicePools::find_demand(const JobSpec& job, const Unfit& unfit) const {
  FleetSpec there = fleet_;
  there.devices.clear();
  for (size_t i = 0; i < slots_.size(); ++i)
    if (access_of(i) != DeviceAccess::kClosed && !among(unfit.devices, fleet_.devices[i].id))
      there.devices.push_back(fleet_.devices[i]);
  Demand found;
  for (const DeviceFilter& filter : filters_of(job)) {
    const auto wanted = demand(job, filter, there, unfit);
    if (wanted)
      found.any_of.push_back(*wanted);
    else
      found.unmet.push_back(reason_of(job, filter, wanted.error()));
  }
  return found;
}

Result<Unit> DevicePools::could_ever(const JobSpec& job, const Unfit& unfit) const {
  Error unmet{ErrorCode::kNoDevice, "", place_of(job, "any_of")};
  FleetSpec fit = fleet_;
  std::erase_if(fit.devices,
                [&](const DeviceSpec& device) { return among(unfit.devices, device.id); });
  for (const DeviceFilter& filter : filters_of(job)) {
    const auto wanted = demand(job, filter, fit, unfit);
    if (wanted) return Unit{};
    if (job.any_of.empty()) return fail(wanted.error());
    unmet.message += (unmet.message.empty() ? "" : "; ") + reason_of(job, filter, wanted.error());
  }
  return fail(std::move(unmet));
}

std::string DevicePools::types_in(const std::vector<size_t>& pools) const {
  std::set<std::string> types;  // pools of one type differ in what jobs may ask for
  for (const size_t pool : pools) types.insert(types_[pool]);
  std::string all;
  for (const std::string& type : types) all += (all.empty() ? "" : ", ") + type;
  return all;
}

/// By pool, all that fit and what limits leave of them.
Alternative DevicePools::limits_of(const JobSpec& job, const DeviceFilter& filter,
                                   const FleetSpec& of, const Unfit& unfit) const {
  Alternative wanted;
  wanted.mix = filter.mix;
  wanted.limit = none();
  for (const DeviceSpec& device : of.devices)
    if (unmet_demand(device, job, filter).empty())
      ++wanted.limit[pool_of_traits_.at(traits_of(device))];
  for (const size_t pool : unfit.pools) wanted.limit[pool] = 0;
  for (const PoolCounts& set : unfit.sets) {
    wanted.unfit.push_back(set);
    wanted.unfit.back().resize(types_.size(), 0);  // pools that came later
  }
  for (const auto& [type, most] : filter.limits) {
    SharedLimit together{{}, most};
    for (size_t pool = 0; pool < types_.size(); ++pool)
      if (type_matches(types_[pool], type)) together.pools.push_back(pool);
    for (const size_t pool : together.pools)
      wanted.limit[pool] = std::min(wanted.limit[pool], most);
    if (together.pools.size() > 1) wanted.shared.push_back(std::move(together));
  }
  return wanted;
}

Result<Alternative> DevicePools::demand(const JobSpec& job, const DeviceFilter& filter,
                                        const FleetSpec& of, const Unfit& unfit) const {
  if (of.devices.empty())
    return fail(ErrorCode::kNoDevice, "none may be given to jobs just now",
                place_of(job, "resources"));
  MOTLEY_TRY_VOID(admitted(of, job, filter));
  Alternative wanted = limits_of(job, filter, of, unfit);
  // Of one type only: as many as the most common one has.
  const int all = wanted.usable_of(wanted.limit);
  if (all == 0)
    return fail(ErrorCode::kNoDevice,
                "none of the devices there can train it: " + types_in(unfit.pools),
                place_of(job, "model"));
  wanted.least = filter.count ? std::max(1, filter.count->low) : all;
  wanted.most = filter.count ? std::min(all, filter.count->high) : all;
  if (wanted.least > all)
    return fail(ErrorCode::kNoDevice,
                "the job asks for " + std::to_string(wanted.least) +
                    " devices of one type and the service has " + std::to_string(all),
                place_of(job, filter.key + ".count"));
  if (!wanted.found_in(wanted.limit))
    return fail(ErrorCode::kNoDevice, "no plan was found on as many devices as it may have",
                place_of(job, filter.key + ".count"));
  return wanted;
}

JobSpec DevicePools::job_on(const FleetSpec& devices, JobSpec job) {
  const auto admits = [&](const DeviceFilter& filter) {
    const auto fit = admitted(devices, job, filter);
    const auto all = static_cast<int>(devices.devices.size());
    return fit && std::ssize(fit->devices) == all && (!filter.count || all <= filter.count->high);
  };
  const auto chosen = std::find_if(job.any_of.begin(), job.any_of.end(), admits);
  if (chosen != job.any_of.end()) job.devices = DeviceFilter(*chosen);
  job.any_of.clear();
  return job;
}

Alternative DevicePools::demand_held(int64_t owner) const {
  Alternative held;
  held.limit = held_by(owner);
  held.least = held.most = sum_of(held.limit);
  return held;
}

std::vector<std::string> DevicePools::give(const PoolCounts& wanted, int64_t owner,
                                           const std::vector<std::string>& but) {
  std::vector<std::string> ids;
  for (const size_t device : choose(wanted, but)) {
    ids.push_back(fleet_.devices[device].id);
    set_owner(device, owner);
  }
  return ids;
}

std::vector<size_t> DevicePools::choose(const PoolCounts& wanted,
                                        const std::vector<std::string>& but) const {
  std::vector<size_t> order;
  for (size_t i = 0; i < slots_.size(); ++i)
    if (is_free(i) && !among(but, fleet_.devices[i].id)) order.push_back(i);
  const auto failures = [&](size_t device) { return failures_of(fleet_.devices[device].id); };
  if (!failures_.empty())
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return failures(a) < failures(b); });
  PoolCounts missing = wanted;
  std::vector<int> worst(wanted.size(), 0);  // of those that are needed
  for (const size_t i : order)
    if (missing[slots_[i].pool]-- > 0) worst[slots_[i].pool] = failures(i);
  if (std::any_of(missing.begin(), missing.end(), [](int count) { return count > 0; })) return {};
  missing = wanted;
  std::vector<size_t> chosen;
  const auto take = [&](auto wants) {
    std::erase_if(order, [&](size_t i) {
      if (missing[slots_[i].pool] == 0 || !wants(i)) return false;
      --missing[slots_[i].pool];
      chosen.push_back(i);
      return true;
    });
  };
  take([&](size_t i) { return failures(i) < worst[slots_[i].pool]; });
  std::erase_if(order, [&](size_t i) { return failures(i) != worst[slots_[i].pool]; });
  while (sum_of(missing) > 0) {
    const std::string& host = best_host(order, missing);
    take([&](size_t i) { return fleet_.devices[i].host == host; });
  }
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

/// That has most of these, and least beside them.
const std::string& DevicePools::best_host(const std::vector<size_t>& devices,
                                          const PoolCounts& missing) const {
  struct Host {
    size_t first = 0;  ///< of its devices
    PoolCounts left;
    int taken = 0, spare = 0;
    auto order() const { return std::tuple(-taken, spare, first); }
  };
  std::map<std::string_view, Host> hosts;
  for (const size_t i : devices) {
    Host& host = hosts.try_emplace(fleet_.devices[i].host, Host{i, missing}).first->second;
    ++(host.left[slots_[i].pool]-- > 0 ? host.taken : host.spare);
  }
  const auto best = std::min_element(hosts.begin(), hosts.end(), [](const auto& a, const auto& b) {
    return a.second.order() < b.second.order();
  });
  return fleet_.devices[best->second.first].host;
}

void DevicePools::give(const std::vector<std::string>& ids, int64_t owner) {
  for (size_t i = 0; i < slots_.size(); ++i)
    if (among(ids, fleet_.devices[i].id)) set_owner(i, owner);
}

void DevicePools::judge(const std::vector<std::string>& ids, bool well) {
  for (const std::string& id : ids) {
    if (well)
      failures_.erase(id);
    else
      ++failures_[id];
  }
}

int DevicePools::failures_of(const std::string& id) const {
  const auto found = failures_.find(id);
  return found == failures_.end() ? 0 : found->second;
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
    if (owner_of(i) == owner && access_of(i) != DeviceAccess::kOpen) ++counts[slots_[i].pool];
  return counts;
}

FleetSpec DevicePools::only(const std::vector<std::string>& ids) const {
  FleetSpec part = fleet_;
  std::erase_if(part.devices, [&](const DeviceSpec& device) { return !among(ids, device.id); });
  return part;
}

}  // namespace motley
