#include "core/host_link.h"

#include <nlohmann/json.hpp>

#include "core/json_fields.h"

namespace motley {
namespace {

constexpr double kLeastRate = 1e-3;
constexpr double kMostRate = 1e18;

}  // namespace

nlohmann::json to_json(const HostLink& link) {
  return {{"to_device_bytes_per_second", link.to_device},
          {"to_host_bytes_per_second", link.to_host},
          {"pageable_to_device_bytes_per_second", link.pageable_to_device},
          {"pageable_to_host_bytes_per_second", link.pageable_to_host},
          {"latency_seconds", link.latency_seconds}};
}

void read_host_link(JsonFields& fields, HostLink* link) {
  fields.read_between("to_device_bytes_per_second", link->to_device, kLeastRate, kMostRate)
      .read_between("to_host_bytes_per_second", link->to_host, kLeastRate, kMostRate)
      .read_between("pageable_to_device_bytes_per_second", link->pageable_to_device, kLeastRate,
                    kMostRate)
      .read_between("pageable_to_host_bytes_per_second", link->pageable_to_host, kLeastRate,
                    kMostRate)
      .read_between("latency_seconds", link->latency_seconds, 0, kMostSeconds);
}

}  // namespace motley
