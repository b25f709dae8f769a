#pragma once
// One NVIDIA GPU, in float or in reduced precision: one stream, on which kernels run in the order
// of the calls.

#include <cublas_v2.h>
#include <cuda_runtime.h>

#include "kernels/device.h"

namespace motley::cuda {

/// What a kernel was launched with and how it went is reported by synchronize(): the first fault
/// since the last call, with the name of the operation.
class CudaDevice final : public Device {
 public:
  /// kUnsupported where the GPU does not compute in `precision`: bf16 is there from sm_80 on.
  static Result<std::unique_ptr<Device>> open(int ordinal, Precision precision);
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;
  ~CudaDevice() override;

  DeviceKind kind() const override { return DeviceKind::kCuda; }
  Precision precision() const override { return precision_; }
  const OpTable& ops() const override;
  int threads() const override { return 1; }
  /// "cuda:sm_90:cublas-13.0.2"
  std::string arithmetic_class() const override;
  std::string name() const override { return properties_.name; }

  Bytes available_memory() override;
  Result<DeviceBuffer> allocate(Bytes size) override;
  Result<DeviceBuffer> allocate_pinned(Bytes size) override;
  Result<Unit> copy_in(void* device, std::span<const std::byte> host) override;
  Result<Unit> copy_out(std::span<std::byte> host, const void* device) override;
  Result<Unit> synchronize() override;
  bool host_accessible() const override { return false; }
  void parallel_for(int64_t count,
                    const std::function<void(int64_t index, int thread)>& body) override;
  int64_t allocation_count() const override { return allocations_; }

  cudaStream_t stream() const { return stream_; }
  int multiprocessors() const { return properties_.multiProcessorCount; }
  cublasHandle_t cublas() const { return cublas_; }
  /// Partial sums of square_sum; operations follow each other on the stream, so one is enough.
  double* partial_sums() const { return partial_sums_; }
  static constexpr int kPartialSums = 1024;

  /// Remembers the first fault.
  void check(cudaError_t status, const char* what);
  void check(cublasStatus_t status, const char* what);

 private:
  CudaDevice(int ordinal, const cudaDeviceProp& properties, Precision precision)
      : ordinal_(ordinal), properties_(properties), precision_(precision) {}
  Result<Unit> start();
  void note_fault(const char* what, const char* reason);

  const int ordinal_;
  const cudaDeviceProp properties_;
  const Precision precision_;
  cudaStream_t stream_ = nullptr;
  cublasHandle_t cublas_ = nullptr;
  void* cublas_workspace_ = nullptr;
  double* partial_sums_ = nullptr;
  int64_t allocations_ = 0;
  std::string fault_;  ///< empty: none since the last synchronize()
};

inline CudaDevice& cuda_device(Device& device) { return static_cast<CudaDevice&>(device); }

}  // namespace motley::cuda
