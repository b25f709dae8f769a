#pragma once
// What NVIDIA's management library tells about GPUs without starting them. The library comes with
// the driver and is opened at run time; its declarations here are our own, after the NVML API
// reference.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/units.h"

namespace motley {

/// A GPU's state now. What the driver or the card does not tell is absent.
struct GpuStatus {
  std::string name;
  std::string uuid;    ///< "GPU-…"
  std::string bus_id;  ///< "00000000:65:00.0", as NVML writes it
  std::optional<Bytes> memory, free_memory;
  std::optional<int> compute_capability;       ///< 90: sm_90
  std::optional<int> sm_clock, most_sm_clock;  ///< MHz
  std::optional<double> power, power_limit;    ///< watts
  std::optional<int> temperature;              ///< degrees Celsius
  std::optional<int> utilisation;  ///< percent of the last second or less in which it computed
  std::optional<int> pcie_width, most_pcie_width;  ///< lanes
  std::optional<int> pcie_generation, most_pcie_generation;
  /// Why it is slower than its clocks allow, in NVML's words; idling and chosen clocks are none.
  std::vector<std::string> throttled_by;
};

/// Faults the driver has reported; https://docs.nvidia.com/deploy/xid-errors explains the numbers.
struct XidEvent {
  std::string uuid;
  int64_t xid = 0;
};

/// The library, initialised. One thread.
class Nvml {
 public:
  /// kUnsupported with one line when there is no library (no driver), or it does not start.
  static Result<std::unique_ptr<Nvml>> open();
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  std::string driver_version() const;
  /// By index, that is by PCI bus id. A card that has fallen off the bus is left out.
  std::vector<GpuStatus> gpus() const;
  /// What has been reported since open() and not returned yet; waits that long for a first one.
  std::vector<XidEvent> new_xids(unsigned patience_ms = 0);

 private:
  struct Api;
  explicit Nvml(std::unique_ptr<Api> api);
  void watch_xids();

  std::unique_ptr<Api> api_;
};

}  // namespace motley
