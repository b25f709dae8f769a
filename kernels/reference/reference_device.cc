#include "kernels/reference/reference_device.h"

#include <cstring>

#include "kernels/host_memory.h"
#include "kernels/reference/reference_ops.h"

namespace motley {

const OpTable& ReferenceDevice::ops() const { return reference::kReferenceOps; }

Bytes ReferenceDevice::available_memory() { return host_memory_available(); }

Result<DeviceBuffer> ReferenceDevice::allocate(Bytes size) {
  ++allocations_;
  return allocate_host_memory(size);
}

Result<Unit> ReferenceDevice::copy_in(void* device, std::span<const std::byte> host) {
  if (!host.empty()) std::memcpy(device, host.data(), host.size());
  return Unit{};
}

Result<Unit> ReferenceDevice::copy_out(std::span<std::byte> host, const void* device) {
  if (!host.empty()) std::memcpy(host.data(), device, host.size());
  return Unit{};
}

void ReferenceDevice::parallel_for(int64_t count, const std::function<void(int64_t, int)>& body) {
  MOTLEY_CHECK(!in_parallel_for_, "parallel_for inside parallel_for");
  in_parallel_for_ = true;
  for (int64_t index = 0; index < count; ++index) body(index, 0);
  in_parallel_for_ = false;
}

}  // namespace motley
