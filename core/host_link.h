#pragma once
// How fast a device and its host exchange memory, as measured: part of a device's profile, and what
// `motley bench link` shows.

#include <nlohmann/json_fwd.hpp>

namespace motley {

class JsonFields;

/// Bytes per second of large copies, each the fastest of several; of a CPU device these are copies
/// within its memory.
struct HostLink {
  double to_device = 0;  ///< from pinned memory
  double to_host = 0;    ///< into pinned memory
  double pageable_to_device = 0;
  double pageable_to_host = 0;
  double latency_seconds = 0;  ///< of a copy of 8 bytes to the device until it is there: median

  bool operator==(const HostLink&) const = default;
};

nlohmann::json to_json(const HostLink& link);
/// Reads the members of one; a fault stays in `fields`.
void read_host_link(JsonFields& fields, HostLink* link);

}  // namespace motley
