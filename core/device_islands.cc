#include "core/device_islands.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "core/holdings.h"

namespace motley {
namespace {

bool is_whole_gpu(const DeviceSpec& device) {
  return device.kind == DeviceKind::kCuda && !device.share;
}

/// Ranks that agree in all of this hold the same slices, in the same precision, on like GPUs.
using Likeness =
    std::tuple<std::string, LayerIndex, LayerIndex, std::vector<double>, int, int, std::string>;

/// Devices send gradients as they are: where hosts compress what they send, no island reaches
/// beyond its host.
Likeness likeness_of(const DeviceSpec& device, const StagePlan& stage, int member,
                     bool compresses) {
  const bool alone = stage.ranks.size() == 1;
  return {device.type,
          stage.first_layer,
          stage.last_layer,
          alone ? std::vector<double>{} : stage.shares,
          member,
          static_cast<int>(stage.precision),
          compresses ? device.host : ""};
}

/// Whether none of these GPUs is another of them. Without a UUID it is the first of its host,
/// whichever that is.
bool all_different(const std::vector<const DeviceSpec*>& devices) {
  std::set<std::pair<std::string, std::string>> seen;
  std::set<std::string> unnamed, named;
  for (const DeviceSpec* device : devices) {
    if (!seen.emplace(device->host, device->uuid).second) return false;
    (device->uuid.empty() ? unnamed : named).insert(device->host);
  }
  return std::none_of(unnamed.begin(), unnamed.end(),
                      [&](const std::string& host) { return named.contains(host); });
}

}  // namespace

DeviceIslands::DeviceIslands(std::vector<std::vector<int>> islands) : all_(std::move(islands)) {
  for (size_t number = 0; number < all_.size(); ++number)
    for (const int rank : all_[number]) {
      const auto index = static_cast<size_t>(rank);
      if (index >= number_of_.size()) number_of_.resize(index + 1, -1);
      number_of_[index] = static_cast<int>(number);
    }
}

const std::vector<int>* DeviceIslands::of(int rank) const {
  if (rank < 0 || rank >= std::ssize(number_of_)) return nullptr;
  const int number = number_of_[static_cast<size_t>(rank)];
  return number < 0 ? nullptr : &all_[static_cast<size_t>(number)];
}

std::vector<int> DeviceIslands::speakers(const std::vector<int>& ranks, int preferred) const {
  if (all_.empty()) return ranks;
  const std::vector<int>* const own = of(preferred);
  std::set<int> found;
  for (const int rank : ranks) {
    const std::vector<int>* island = of(rank);
    found.insert(island == nullptr ? rank : island == own ? preferred : island->front());
  }
  return {found.begin(), found.end()};
}

DeviceIslands device_islands(const Plan& plan, const FleetSpec& fleet) {
  // What a speaker makes of whole matrices, owners elsewhere in its island would not get.
  if (plan.shard_optimizer && plan.compression.factors()) return {};
  std::map<Likeness, std::vector<int>> alike;
  std::map<Likeness, std::vector<const DeviceSpec*>> devices;
  for (const ReplicaPlan& replica : plan.replicas)
    for (const StagePlan& stage : replica.stages)
      for (size_t member = 0; member < stage.ranks.size(); ++member) {
        const int rank = stage.ranks[member].value();
        const DeviceSpec* device = fleet.find(plan.ranks[static_cast<size_t>(rank)].device);
        if (device == nullptr || !is_whole_gpu(*device)) continue;
        const Likeness likeness =
            likeness_of(*device, stage, static_cast<int>(member), plan.compression.on());
        alike[likeness].push_back(rank);
        devices[likeness].push_back(device);
      }
  std::vector<std::vector<int>> islands;
  for (auto& [likeness, ranks] : alike) {
    if (ranks.size() < 2 || !all_different(devices[likeness])) continue;
    std::sort(ranks.begin(), ranks.end());
    islands.push_back(std::move(ranks));
  }
  std::sort(islands.begin(), islands.end());
  return DeviceIslands(std::move(islands));
}

int fewest_speakers(const FleetSpec& fleet) {
  std::set<std::string> gpus;
  int others = 0;
  for (const DeviceSpec& device : fleet.devices)
    if (is_whole_gpu(device))
      gpus.insert(device.type);
    else
      ++others;
  return static_cast<int>(gpus.size()) + others;
}

}  // namespace motley
