#pragma once
// This machine's CPU, in float; or, to stand for devices that do, storing activations in reduced
// precision.

#include "kernels/cpu/blas.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/device.h"

namespace motley {

class CpuDevice final : public Device {
 public:
  /// kUnsupported when this CPU lacks the instructions the kernels were built for; kBrokenInstall
  /// without OpenBLAS.
  static Result<std::unique_ptr<Device>> open(int threads, Precision precision);

  CpuDevice(const Blas& blas, int threads, Precision precision)
      : blas_(blas), pool_(threads), precision_(precision) {}

  DeviceKind kind() const override { return DeviceKind::kCpu; }
  Precision precision() const override { return precision_; }
  const OpTable& ops() const override;
  int threads() const override { return pool_.threads(); }
  /// "cpu:x86-64-v3:openblas-0.3.21-SkylakeX"
  std::string arithmetic_class() const override;
  std::string name() const override;

  Bytes available_memory() override;
  Result<DeviceBuffer> allocate(Bytes size) override;
  Result<DeviceBuffer> allocate_pinned(Bytes size) override { return allocate(size); }
  Result<DeviceBuffer> allocate_managed(Bytes size) override { return allocate(size); }
  Result<Unit> reserve_scratch(Bytes size) override;
  Result<Unit> copy_in(void* device, std::span<const std::byte> host) override;
  Result<Unit> copy_out(std::span<std::byte> host, const void* device) override;
  Result<Unit> synchronize() override { return Unit{}; }
  bool host_accessible() const override { return true; }
  void parallel_for(int64_t count,
                    const std::function<void(int64_t index, int thread)>& body) override;
  int64_t allocation_count() const override { return allocations_; }

  const Blas& blas() const { return blas_; }
  /// At least `size` bytes, valid until the next call.
  std::byte* scratch(Bytes size);

 private:
  const Blas& blas_;
  ThreadPool pool_;
  const Precision precision_;
  DeviceBuffer scratch_;
  int64_t allocations_ = 0;
};

}  // namespace motley
