#pragma once
#include <string>

#include "core/ids.h"
#include "core/result.h"
#include "kernels/device.h"

namespace motley {

/// 64-byte aligned host memory, contents undefined. kOutOfMemory when the machine has no such
/// amount.
Result<DeviceBuffer> allocate_host_memory(Bytes size);

/// What the operating system says about this machine.
Bytes host_memory_size();
Bytes host_memory_available();
std::string host_cpu_name();
/// Cores this process may run on.
int host_cores();

}  // namespace motley
