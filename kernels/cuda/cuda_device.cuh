#pragma once
// One NVIDIA GPU, in float or in reduced precision: one stream, on which kernels run in the order
// of the calls, and one for copies in each direction beside it.

#include <cuda_runtime.h>

#include <optional>

#include "core/nvml.h"
#include "kernels/cuda/cudnn_attention.h"
#include "kernels/cuda/green_context.cuh"
#include "kernels/cuda/lt_matmul.cuh"
#include "kernels/device.h"

namespace motley::cuda {

/// "GPU-5a1fc1f2-…" as nvidia-smi prints it; "MIG-…" of a part of a GPU.
std::string uuid_text(const cudaDeviceProp& properties);
/// 90 of sm_90.
inline int capability_of(const cudaDeviceProp& gpu) { return gpu.major * 10 + gpu.minor; }

/// What a kernel was launched with and how it went is reported by synchronize(): the first fault
/// since the last call, with the name of the operation.
class CudaDevice final : public Device {
 public:
  /// kUnsupported where the GPU does not compute in `precision`: bf16 and tf32 are there from
  /// sm_80 on, fp8 from sm_89 on. With a share as GreenContext::create.
  static Result<std::unique_ptr<Device>> open(int ordinal, Precision precision,
                                              const std::optional<ShareSpec>& share);
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;
  ~CudaDevice() override;

  DeviceKind kind() const override { return DeviceKind::kCuda; }
  Precision precision() const override { return precision_; }
  const OpTable& ops() const override;
  int threads() const override { return 1; }
  /// "cuda:NVIDIA L4:sm_89:cublas-13.0.2:58-multiprocessors": for another number of them cuBLAS may
  /// choose other algorithms; in reduced precision with what computes attention if that is not
  /// ours,
  /// ":cudnn-9.19.0".
  std::string arithmetic_class() const override;
  std::string name() const override;

  Bytes available_memory() override;
  Result<DeviceBuffer> allocate(Bytes size) override;
  Result<DeviceBuffer> allocate_pinned(Bytes size) override;
  Result<DeviceBuffer> allocate_managed(Bytes size) override;
  Result<Unit> copy_in(void* device, std::span<const std::byte> host) override;
  Result<Unit> copy_out(std::span<std::byte> host, const void* device) override;
  Result<Unit> enqueue_copy_in(void* device, std::span<const std::byte> host) override;
  Result<Unit> enqueue_copy_out(std::span<std::byte> host, const void* device) override;
  Result<Unit> copy_in_beside(void* device, std::span<const std::byte> host, StreamMark& after,
                              StreamMark& done) override;
  Result<Unit> copy_out_beside(std::span<std::byte> host, const void* device, StreamMark& after,
                               StreamMark& done) override;
  std::unique_ptr<StreamMark> make_mark() override;
  std::unique_ptr<Recording> record(std::function<void()> enqueue) override;
  Result<Unit> synchronize() override;
  Result<bool> idle() override;
  void* native_stream() override { return stream_; }
  /// NVTX, in the domain "motley".
  void begin_range(const char* name) override;
  void end_range() override;
  bool host_accessible() const override { return false; }
  void parallel_for(int64_t count,
                    const std::function<void(int64_t index, int thread)>& body) override;
  int64_t allocation_count() const override { return allocations_; }

  /// 90 of sm_90.
  int capability() const { return capability_of(properties_); }
  cudaStream_t stream() const { return stream_; }
  LtMatmul& products() { return products_; }
  /// Null where our own kernels do it all.
  cudnn::Attention* attention() { return attention_.get(); }
  /// Memory for what an operation leaves between its kernels; operations follow each other on the
  /// stream, so one is enough. 256-byte aligned.
  void* workspace() const { return workspace_; }
  /// At least so many bytes: what cuBLAS recommends for its newest GPUs.
  static constexpr size_t kWorkspace = size_t{32} << 20;
  /// Another one, for kernels beside those of stream(): on the share's multiprocessors where it is
  /// a share. Does not wait for the default stream; the caller destroys it before this goes.
  Result<cudaStream_t> create_stream();
  /// What kernels can run on: all of the GPU's, or the share's.
  int multiprocessors() const { return share_ ? share_->sms : properties_.multiProcessorCount; }
  /// Partial sums of square_sum; operations follow each other on the stream, so one is enough.
  double* partial_sums() const { return partial_sums_; }
  static constexpr int kPartialSums = 1024;

  /// Notes what launch() and copies put on the stream, without doing it; null when that is not
  /// possible, with the reason.
  cudaGraphExec_t capture(const std::function<void()>& enqueue, std::string* why);

  /// Remembers the first fault.
  void check(cudaError_t status, const char* what);
  void check(cublasStatus_t status, const char* what);
  void check_cudnn(const std::string& fault, const char* what);

 private:
  CudaDevice(int ordinal, const cudaDeviceProp& properties, Precision precision,
             const std::optional<ShareSpec>& share)
      : ordinal_(ordinal), properties_(properties), precision_(precision), share_(share) {}
  Result<Unit> start();
  const cudnn::Library* cudnn_for_attention() const;
  void start_attention(const cudnn::Library& library, size_t workspace_size);
  void copy_beside(cudaStream_t copies, void* to, const void* from, size_t size, StreamMark& after,
                   StreamMark& done);
  void note_fault(const char* what, const char* reason, ErrorCode code);
  Error take_fault();

  const int ordinal_;
  const cudaDeviceProp properties_;
  const Precision precision_;
  const std::optional<ShareSpec> share_;
  std::unique_ptr<GreenContext> part_;  ///< of a share
  std::unique_ptr<Nvml> nvml_;          ///< null where the driver has none
  cudaStream_t stream_ = nullptr;
  cudaStream_t copies_in_ = nullptr, copies_out_ = nullptr;  ///< beside it
  LtMatmul products_;
  std::unique_ptr<cudnn::Attention> attention_;
  void* workspace_ = nullptr;
  double* partial_sums_ = nullptr;
  int64_t allocations_ = 0;
  std::string fault_;  ///< empty: none since the last synchronize()
  ErrorCode fault_code_ = ErrorCode::kDeviceLost;
};

inline CudaDevice& cuda_device(Device& device) { return static_cast<CudaDevice&>(device); }

}  // namespace motley::cuda
