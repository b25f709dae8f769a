#pragma once

#include <optional>
#include <string>

#include "core/ids.h"

namespace motley {

/// What the driver of a GPU tells of it now; what it does not tell is empty.
struct DeviceGauge {
  std::string uuid;
  std::optional<int> utilisation = {};  ///< percent of the time in which it computed
  std::optional<int> temperature = {};  ///< degrees Celsius
  std::optional<Bytes> memory_used = {}, memory = {};
  bool operator==(const DeviceGauge&) const = default;
};

}  // namespace motley
