#pragma once
// double on the CPU with naive loops: what every other device is compared with, and a device of
// its own on which a model can be differentiated numerically.

#include "kernels/device.h"

namespace motley {

class ReferenceDevice final : public Device {
 public:
  DeviceKind kind() const override { return DeviceKind::kReference; }
  Precision precision() const override { return Precision::kFp64; }
  const OpTable& ops() const override;
  int threads() const override { return 1; }
  std::string arithmetic_class() const override { return "reference:float64"; }
  std::string name() const override { return "float64 reference"; }

  Bytes available_memory() override;
  Result<DeviceBuffer> allocate(Bytes size) override;
  Result<DeviceBuffer> allocate_pinned(Bytes size) override { return allocate(size); }
  Result<DeviceBuffer> allocate_managed(Bytes size) override { return allocate(size); }
  Result<Unit> copy_in(void* device, std::span<const std::byte> host) override;
  Result<Unit> copy_out(std::span<std::byte> host, const void* device) override;
  Result<Unit> synchronize() override { return Unit{}; }
  bool host_accessible() const override { return true; }
  void parallel_for(int64_t count,
                    const std::function<void(int64_t index, int thread)>& body) override;
  int64_t allocation_count() const override { return allocations_; }

 private:
  bool in_parallel_for_ = false;
  int64_t allocations_ = 0;
};

}  // namespace motley
