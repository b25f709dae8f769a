#include "core/spec/one_precision.h"

#include "core/spec/names.h"

namespace motley {

Result<Unit> check_one_precision(const FleetSpec& fleet, const JobSpec& job) {
  const auto name = [&](const DeviceSpec& device) {
    return device.id + " (kind " + spec_name(device.kind) + ") computes in " +
           spec_name(precision_computed(job, device.kind));
  };
  for (const DeviceSpec& device : fleet.devices) {
    const DeviceSpec& first = fleet.devices.front();
    if (precision_computed(job, device.kind) == precision_computed(job, first.kind)) continue;
    return fail(ErrorCode::kInvalidSpec,
                name(first) + ", " + name(device) +
                    ": devices that train together need one precision; choose among them with "
                    "resources.devices.types");
  }
  return Unit{};
}

}  // namespace motley
