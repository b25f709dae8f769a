#include "worker/train/island.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/log.h"

namespace motley {

bool form_island(const std::vector<const DeviceSpec*>& devices) {
  if (devices.size() < 2) return false;
  // Without a UUID it is the first GPU of its host, whichever that is.
  std::set<std::pair<std::string, std::string>> seen;
  std::set<std::string> unnamed, named;
  for (const DeviceSpec* device : devices) {
    if (device->kind != DeviceKind::kCuda || device->share) return false;
    if (device->type != devices[0]->type) return false;
    if (!seen.emplace(device->host, device->uuid).second) return false;
    (device->uuid.empty() ? unnamed : named).insert(device->host);
  }
  return std::none_of(unnamed.begin(), unnamed.end(),
                      [&](const std::string& host) { return named.contains(host); });
}

bool sums_whole_gradients(const Plan& plan) {
  return !plan.shard_optimizer &&
         std::all_of(plan.replicas.begin(), plan.replicas.end(), [](const ReplicaPlan& replica) {
           return replica.stages.size() == 1 && replica.stages[0].ranks.size() == 1;
         });
}

Result<std::unique_ptr<DeviceCommunicator>> open_island(
    const std::vector<const DeviceSpec*>& devices, Communicator& ranks, Device& device) {
  if (!form_island(devices)) return nullptr;
  auto island = open_nccl_communicator(ranks, device);
  if (!island && island.error().code != ErrorCode::kUnsupported) return fail(island.error());
  if (ranks.rank() == 0)
    log_info(island ? "gradients are summed on the GPUs by " + (*island)->description()
                    : "gradients are summed through host memory: " + island.error().message);
  if (!island) return nullptr;
  return std::move(*island);
}

}  // namespace motley
