#include "kernels/device.h"

#include "kernels/cpu/cpu_device.h"
#include "kernels/cuda_module.h"
#include "kernels/reference/reference_device.h"

namespace motley {

Result<std::unique_ptr<Device>> open_device(const DeviceSpec& spec) {
  switch (spec.kind) {
    case DeviceKind::kCpu:
      return CpuDevice::open(spec.threads);
    case DeviceKind::kReference:
      return std::make_unique<ReferenceDevice>();
    case DeviceKind::kCuda:
      return open_cuda_device(spec);
  }
  return fail(ErrorCode::kInternal, "unknown kind of device");
}

}  // namespace motley
