#pragma once
// Copies between host and device, timed.

#include <functional>

#include "core/host_link.h"
#include "core/ids.h"
#include "core/result.h"
#include "kernels/device.h"

namespace motley {

/// Bytes of each large copy when a job's devices are profiled: long enough to tell the bandwidth
/// of any link to a percent.
inline constexpr Bytes kProfiledCopy{32 << 20};

/// Copies `size` bytes, at least 8, at a time; needs twice that of host memory and once of the
/// device's. `now` is in seconds. Takes a second or so; on the slowest links at most one copy of
/// each kind more.
Result<HostLink> measure_host_link(Device& device, Bytes size, const std::function<double()>& now);

}  // namespace motley
