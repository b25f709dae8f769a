#include "kernels/device.h"

#include "core/spec/names.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/cuda_module.h"
#include "kernels/reference/reference_device.h"

namespace motley {

namespace {

Result<std::unique_ptr<Device>> open_kind(const DeviceSpec& spec, Precision precision) {
  switch (spec.kind) {
    case DeviceKind::kCpu:
      return CpuDevice::open(spec.threads, precision);
    case DeviceKind::kReference:
      return std::make_unique<ReferenceDevice>();
    case DeviceKind::kCuda:
      return open_cuda_device(spec, precision);
  }
  return fail(ErrorCode::kInternal, "unknown kind of device");
}

}  // namespace

Result<std::unique_ptr<Device>> open_device(const DeviceSpec& spec, Precision precision) {
  MOTLEY_TRY(auto device, open_kind(spec, precision));
  if (precision == Precision::kAuto || precision == device->precision()) return device;
  return fail(ErrorCode::kUnsupported, device->name() + " does not compute in " +
                                           spec_name(precision) + " but in " +
                                           spec_name(device->precision()));
}

}  // namespace motley
