#pragma once
// Asks the driver after this machine's GPUs, on a thread of its own: a driver that does not answer
// keeps nobody else waiting.

#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "core/spec/fleet_spec.h"
#include "scheduler/service/device_gauge.h"

namespace motley {

/// Thread-safe.
class DeviceWatch {
 public:
  /// Of the GPUs of `fleet` that have a UUID; without any, or without a driver, nothing is asked.
  explicit DeviceWatch(const FleetSpec& fleet);

  /// Not older than some seconds; of a GPU that the driver does not show there is none.
  std::vector<DeviceGauge> latest() const;

 private:
  void ask(const std::stop_token& stop);

  std::vector<std::string> uuids_;
  mutable std::mutex mutex_;
  std::condition_variable_any pause_;
  std::vector<DeviceGauge> latest_;
  std::jthread thread_;  ///< last: it ends first
};

}  // namespace motley
