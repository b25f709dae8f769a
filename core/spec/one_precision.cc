#include "core/spec/one_precision.h"

#include "core/spec/names.h"

namespace motley {

Result<Unit> check_one_precision(const FleetSpec& fleet, const JobSpec& job) {
  const auto name = [&](const DeviceSpec& device) {
    return device.id + " (kind " + spec_name(device.kind) + ") computes in " +
           spec_name(precision_computed(job, device.kind));
  };
  for (const DeviceSpec& device : fleet.devices) {
    const SourcePlace place =
        device.place.file.empty() ? SourcePlace{job.source, 0, 0} : device.place;
    if (lacks_precision(job, device.kind))
      return fail(ErrorCode::kInvalidSpec,
                  name(device) + ", but train.precision is " + spec_name(job.train.precision) +
                      ": only devices of kind cpu have it; choose them with "
                      "resources.devices.types, or train in another precision",
                  place);
    const DeviceSpec& first = fleet.devices.front();
    if (precision_computed(job, device.kind) == precision_computed(job, first.kind)) continue;
    return fail(ErrorCode::kInvalidSpec,
                name(first) + ", " + name(device) +
                    ": devices that train together need one precision; choose among them with "
                    "resources.devices.types",
                place);
  }
  return Unit{};
}

}  // namespace motley
