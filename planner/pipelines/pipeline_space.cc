#include "planner/pipelines/pipeline_space.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <tuple>

#include "core/model.h"
#include "planner/costs/cost_model.h"
#include "planner/pipelines/placement.h"
#include "planner/plain/device_index.h"

namespace motley {
namespace {

/// Sets of devices, times layers, that are looked at where no number of stages is given.
constexpr size_t kMostOfLayers = 25'000;
/// Of a step, and of a device's even share of it, where the job leaves the grain open: a share of a
/// replica is hardly ever finer.
constexpr int kFinestCut = 2048, kFinestCutOfADevice = 16;
constexpr int kFewOrders = 6;
constexpr int kFewStages = 8;
/// Of as many devices as are needed at least for a model's state, so many times that are looked at.
constexpr int kMoreThanNeeded = 2;
/// Sets, of so few of which all devices may be a replica; the same where all packings are looked
/// at.
constexpr size_t kFewSets = 16, kFewSetsOfFew = 400;

/// All sets of at most `most` devices, but the empty one; of more than `most_sets` some.
void extend_sets(const GroupCounts& there, size_t group, int most, size_t most_sets,
                 GroupCounts* set, std::vector<GroupCounts>* sets) {
  if (group == there.size()) {
    if (std::accumulate(set->begin(), set->end(), 0) > 0) sets->push_back(*set);
    return;
  }
  for (int count = 0; count <= std::min(there[group], most); ++count) {
    (*set)[group] = count;
    extend_sets(there, group + 1, most - count, most_sets, set, sets);
    if (sets->size() > most_sets) break;
  }
  (*set)[group] = 0;
}

/// A weight, its gradient and two moments.
constexpr double kStateOfAnElement = 16;

/// The largest, that state of the model goes into.
int devices_that_hold(const PlanRequest& request, const std::vector<DeviceGroup>& groups) {
  double left = 0;
  for (const LogicalTensor& tensor : logical_tensors(request.job.model))
    left += kStateOfAnElement * static_cast<double>(tensor.elements());
  std::vector<double> memories;
  for (const DeviceGroup& group : groups)
    memories.insert(
        memories.end(), static_cast<size_t>(group.count()),
        static_cast<double>(usable_memory(*group.profile, request.memory_headroom).value()));
  std::sort(memories.rbegin(), memories.rend());
  int devices = 0;
  for (; left > 0 && devices < std::ssize(memories); ++devices)
    left -= memories[static_cast<size_t>(devices)];
  return devices;
}

int most_devices_of(const std::vector<GroupCounts>& sets) {
  int most = 0;
  for (const GroupCounts& set : sets) most = std::max(most, number_of(set));
  return most;
}

int longest_of(const PlanRequest& request, const std::vector<DeviceGroup>& groups,
               const GroupCounts& there, bool few) {
  const int devices = std::accumulate(there.begin(), there.end(), 0);
  const size_t most_sets = few ? kFewSetsOfFew : kFewSets;
  const bool few_sets = most_devices_of(sets_of(there, devices, most_sets)) == devices;
  const int most = std::max({kFewStages, request.job.parallel.pipeline.value_or(1),
                             kMoreThanNeeded * devices_that_hold(request, groups)});
  return few_sets ? devices : std::min(most, devices);
}

/// What was measured of a device.
using DeviceKey = std::tuple<std::string, Bytes, double, double>;
/// What was measured of a host: its devices, and its links to itself and others.
using HostKey = std::pair<std::vector<DeviceKey>, std::vector<std::tuple<bool, double, double>>>;

/// Of more hosts their links are not looked at.
constexpr size_t kFewHosts = 64;

DeviceKey key_of(const DeviceIndex& index, const DeviceSpec& device) {
  const DeviceProfile* profile = index.profile(device.id);
  if (profile == nullptr) return {device.type, Bytes(0), 0.0, 0.0};
  return {device.type, profile->memory_limit, profile->update_seconds, profile->best_speed()};
}

std::map<std::string, HostKey> keys_of_hosts(const PlanRequest& request, const DeviceIndex& index) {
  std::map<std::string, HostKey> keys;
  for (const DeviceSpec& device : request.fleet.devices)
    keys[device.host].first.push_back(key_of(index, device));
  const size_t links = keys.size() > kFewHosts ? 0 : request.profile.links.size();
  for (size_t i = 0; i < links; ++i) {
    const LinkProfile& link = request.profile.links[i];
    if (!keys.contains(link.between[0]) || !keys.contains(link.between[1])) continue;
    const bool is_within = link.between[0] == link.between[1];
    for (const std::string& host : std::set{link.between[0], link.between[1]})
      keys[host].second.emplace_back(is_within, link.bytes_per_second, link.latency_seconds);
  }
  for (auto& [host, key] : keys) {
    std::sort(key.first.begin(), key.first.end());
    std::sort(key.second.begin(), key.second.end());
  }
  return keys;
}

}  // namespace

std::vector<GroupCounts> sets_of(const GroupCounts& there, int most, size_t most_sets) {
  std::vector<GroupCounts> sets;
  for (; most > 0; --most) {
    sets.clear();
    GroupCounts set(there.size(), 0);
    extend_sets(there, 0, most, most_sets, &set, &sets);
    if (sets.size() <= most_sets) break;
  }
  return sets;
}

FleetSpec in_order(const PlanRequest& request) {
  FleetSpec fleet = request.fleet;
  const DeviceIndex index(request.fleet, request.profile);
  const std::map<std::string, HostKey> hosts = keys_of_hosts(request, index);
  std::vector<std::pair<HostKey, std::string>> sorted;
  for (const auto& [host, key] : hosts) sorted.emplace_back(key, host);
  std::sort(sorted.begin(), sorted.end());
  std::map<std::string, size_t> place;
  for (size_t i = 0; i < sorted.size(); ++i) place[sorted[i].second] = i;
  std::stable_sort(fleet.devices.begin(), fleet.devices.end(),
                   [&](const DeviceSpec& a, const DeviceSpec& b) {
                     return std::pair(place.at(a.host), key_of(index, a)) <
                            std::pair(place.at(b.host), key_of(index, b));
                   });
  return fleet;
}

int grain_of(const JobSpec& job, size_t devices) {
  if (job.train.grain) return *job.train.grain;
  const int finest = std::max(kFinestCut, kFinestCutOfADevice * static_cast<int>(devices));
  return (job.train.global_batch + finest - 1) / finest;
}

std::vector<int> micro_batches_of(const PlanRequest& request,
                                  const std::vector<DeviceGroup>& groups, int grain) {
  if (request.job.train.numerics == Numerics::kExact) return {grain};
  int most = grain;
  for (const DeviceGroup& group : groups)
    for (const LayerCurve& curve : group.profile->curves)
      most = std::max(most, curve.points.back().micro_batch);
  const int batch = request.job.train.global_batch;
  most = most < batch ? most / grain * grain : (batch + grain - 1) / grain * grain;
  std::vector<int> sizes;
  for (int power = grain; power <= most; power *= 2)
    for (const int size : {power, power / grain % 2 == 0 ? power / 2 * 3 : power})
      if (size <= most && size % grain == 0 && (sizes.empty() || size > sizes.back()))
        sizes.push_back(size);
  if (sizes.back() < most) sizes.push_back(most);  // all of a step at once
  return sizes;
}

PipelineSpace::PipelineSpace(const PlanRequest& asked, std::vector<DeviceGroup> devices)
    : request(asked),
      groups(std::move(devices)),
      grain(grain_of(asked.job, asked.fleet.devices.size())) {
  for (const DeviceGroup& group : groups) there.push_back(group.count());
  few = few_enough_to_enumerate(there);
  longest = longest_of(request, groups, there, few);
  most_of_a_replica_ = most_devices_of(sets(longest));
  most_of_any_replica_ = most_devices_of(sets_of(there, longest, most_sets()));
  if (!few) hosts = devices_of_hosts(groups);
  micro_batches = micro_batches_of(request, groups, grain);
}

size_t PipelineSpace::most_sets() const {
  if (few || wanted().pipeline) return kMostSets;
  return std::min(kMostSets, kMostOfLayers / static_cast<size_t>(layer_count(request.job.model)));
}

std::vector<GroupCounts> PipelineSpace::sets(int most_devices) const {
  std::vector<GroupCounts> sets = sets_of(there, most_devices, most_sets());
  if (few || wanted().pipeline) return sets;
  std::set<GroupCounts> known(sets.begin(), sets.end());
  int evenly = 0;  // replicas of all devices at most
  for (const int count : there) evenly = std::gcd(evenly, count);
  for (int replicas = 1; replicas <= evenly; ++replicas) {
    if (evenly % replicas != 0) continue;
    GroupCounts set = there;
    for (int& count : set) count /= replicas;
    if (number_of(set) > most_devices) continue;
    for (GroupCounts& part : sets_of(set, most_devices))
      if (known.insert(part).second) sets.push_back(std::move(part));
  }
  return sets;
}

int PipelineSpace::most_stages() const {
  return std::min(wanted().pipeline.value_or(most_of_a_replica_), layer_count(request.job.model));
}

int PipelineSpace::most_replicas() const {
  return std::min({wanted().data.value_or(devices()), devices(), grains()});
}

int PipelineSpace::devices() const { return std::accumulate(there.begin(), there.end(), 0); }

PackingProblem PipelineSpace::packing(int least_replicas, int most_replicas,
                                      double precision) const {
  const auto& count = request.job.devices.count;
  return {.devices = there,
          .hosts = hosts,
          .most_devices = std::min(devices(), count ? count->high : devices()),
          .grains = grains(),
          .grain = grain,
          .missing = missing(),
          .least_replicas = least_replicas,
          .most_replicas = most_replicas,
          .precision = precision};
}

std::vector<std::pair<int, int>> PipelineSpace::numbers_of_replicas() const {
  const int most = most_replicas();
  std::vector<std::pair<int, int>> numbers{{1, few ? 1 : most}, {2, few ? most : 0}};
  if (wanted().data) numbers = {{most, most}};
  for (auto& [low, high] : numbers) low = std::max(low, request.least_replicas);
  return numbers;
}

bool PipelineSpace::is_for_all_grains(int cuts) const {
  return grains() * static_cast<int>(micro_batches.size()) * kFewOrders <= cuts;
}

std::vector<int> PipelineSpace::samples_for(const PipelineCosts& costs, const GroupCounts& set,
                                            double least, int cuts) const {
  std::vector<int> samples{batch()};
  if (is_for_all_grains(cuts)) {
    for (int count = 1; count <= grains(); ++count) samples.push_back(count * grain);
    for (int count = 1; missing() > 0 && count <= grains(); ++count)
      samples.push_back(count * grain - missing());
    return samples;
  }
  const double whole = costs.least_seconds(set, batch());
  if (whole <= 0) return samples;
  const double share = grains() * std::min(1.0, least / whole);
  for (const double part : {0.6, 1.2})
    samples.push_back(std::clamp(static_cast<int>(part * share), 1, grains()) * grain);
  return samples;
}

Error PipelineSpace::none_fits() const {
  if (!wanted().data && !wanted().pipeline && !all_shared())
    return {ErrorCode::kNoPlan,
            "no pipeline over any of the " + std::to_string(devices()) +
                " devices holds the model; more memory, more devices, a smaller model or context "
                "would help",
            {}};
  std::string of;
  if (wanted().data)
    of += " of " + std::to_string(*wanted().data) + " replicas (parallel.data)";
  else if (wanted().pipeline)
    of += " of replicas";
  if (wanted().pipeline)
    of += " of " + std::to_string(*wanted().pipeline) + " stages (parallel.pipeline)";
  if (all_shared())
    of += ", each stage on " + std::to_string(*wanted().tensor) + " devices (parallel.tensor),";
  return {ErrorCode::kNoPlan,
          "no plan found" + of + " over the " + std::to_string(devices()) +
              " devices that holds the model",
          place_of(request.job, wanted().data       ? "parallel.data"
                                : wanted().pipeline ? "parallel.pipeline"
                                                    : "parallel.tensor")};
}

}  // namespace motley
