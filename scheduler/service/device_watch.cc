#include "scheduler/service/device_watch.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/nvml.h"

namespace motley {
namespace {

constexpr auto kAskEvery = std::chrono::seconds(2);

DeviceGauge gauge_of(const GpuStatus& status) {
  DeviceGauge gauge{status.uuid, status.utilisation, status.temperature, {}, status.memory};
  if (status.memory && status.free_memory) gauge.memory_used = *status.memory - *status.free_memory;
  return gauge;
}

}  // namespace

DeviceWatch::DeviceWatch(const FleetSpec& fleet) {
  for (const DeviceSpec& device : fleet.devices)
    if (device.kind == DeviceKind::kCuda && !device.uuid.empty()) uuids_.push_back(device.uuid);
  if (!uuids_.empty()) thread_ = std::jthread([this](const std::stop_token& stop) { ask(stop); });
}

std::vector<DeviceGauge> DeviceWatch::latest() const {
  const std::lock_guard lock(mutex_);
  return latest_;
}

void DeviceWatch::ask(const std::stop_token& stop) {
  const auto nvml = Nvml::open();
  if (!nvml) return;
  while (!stop.stop_requested()) {
    std::vector<DeviceGauge> gauges;
    for (const GpuStatus& status : (*nvml)->gpus())
      if (std::find(uuids_.begin(), uuids_.end(), status.uuid) != uuids_.end())
        gauges.push_back(gauge_of(status));
    std::unique_lock lock(mutex_);
    latest_ = std::move(gauges);
    pause_.wait_for(lock, stop, kAskEvery, [] { return false; });
  }
}

}  // namespace motley
