#include "core/check.h"
#include "core/spec/names.h"
#include "core/units.h"
#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/cuda_ops.h"

namespace motley::cuda {
namespace {

/// What cuBLAS recommends for its newest GPUs; given once, so that it allocates nothing later.
constexpr size_t kCublasWorkspace = size_t{32} << 20;

Error lost(const std::string& device, const char* what, cudaError_t status) {
  return {ErrorCode::kDeviceLost, device + ": " + what + ": " + cudaGetErrorString(status), {}};
}

}  // namespace

Result<std::unique_ptr<Device>> CudaDevice::open(int ordinal, Precision precision) {
  cudaDeviceProp properties{};
  if (const auto status = cudaGetDeviceProperties(&properties, ordinal); status != cudaSuccess)
    return fail(lost("GPU " + std::to_string(ordinal), "properties", status));
  if (precision == Precision::kBf16 && properties.major < 8)
    return fail(ErrorCode::kUnsupported,
                std::string(properties.name) + " (sm_" + std::to_string(properties.major) +
                    std::to_string(properties.minor) +
                    ") has no bf16, which comes with sm_80; train in fp16 on it");
  std::unique_ptr<CudaDevice> device(
      new CudaDevice(ordinal, properties, is_reduced(precision) ? precision : Precision::kFp32));
  MOTLEY_TRY_VOID(device->start());
  return device;
}

Result<Unit> CudaDevice::start() {
  const auto step = [&](const char* what, cudaError_t status) -> Result<Unit> {
    if (status != cudaSuccess) return fail(lost(name(), what, status));
    return Unit{};
  };
  MOTLEY_TRY_VOID(step("select", cudaSetDevice(ordinal_)));
  MOTLEY_TRY_VOID(step("stream", cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)));
  MOTLEY_TRY_VOID(step("workspace", cudaMalloc(&cublas_workspace_, kCublasWorkspace)));
  MOTLEY_TRY_VOID(step("workspace", cudaMalloc(&partial_sums_, kPartialSums * sizeof(double))));
  if (cublasCreate(&cublas_) != CUBLAS_STATUS_SUCCESS ||
      cublasSetStream(cublas_, stream_) != CUBLAS_STATUS_SUCCESS ||
      cublasSetWorkspace(cublas_, cublas_workspace_, kCublasWorkspace) != CUBLAS_STATUS_SUCCESS)
    return fail(ErrorCode::kDeviceLost, name() + ": cuBLAS does not start");
  return Unit{};
}

CudaDevice::~CudaDevice() {
  // Whatever fails here fails because the device is lost; nothing is left to save.
  if (stream_ != nullptr) cudaStreamSynchronize(stream_);
  if (cublas_ != nullptr) cublasDestroy(cublas_);
  cudaFree(partial_sums_);
  cudaFree(cublas_workspace_);
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

const OpTable& CudaDevice::ops() const { return ops_in(precision_); }

std::string CudaDevice::arithmetic_class() const {
  int version[3] = {};
  cublasGetProperty(MAJOR_VERSION, &version[0]);
  cublasGetProperty(MINOR_VERSION, &version[1]);
  cublasGetProperty(PATCH_LEVEL, &version[2]);
  return "cuda:sm_" + std::to_string(capability()) + ":cublas-" + std::to_string(version[0]) + "." +
         std::to_string(version[1]) + "." + std::to_string(version[2]) +
         (is_reduced(precision_) ? ":" + spec_name(precision_) : "");
}

Bytes CudaDevice::available_memory() {
  size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "free memory");
  return Bytes(static_cast<int64_t>(free));
}

Result<DeviceBuffer> CudaDevice::allocate(Bytes size) {
  ++allocations_;
  if (size.value() == 0) return DeviceBuffer();
  void* data = nullptr;
  const auto status = cudaMalloc(&data, static_cast<size_t>(size.value()));
  if (status == cudaSuccess)
    return DeviceBuffer(data, size, [](void* memory) { cudaFree(memory); });
  cudaGetLastError();  // a refused allocation is no fault of the next launch
  size_t free = 0, total = 0;
  cudaMemGetInfo(&free, &total);
  return fail(ErrorCode::kDeviceLost, name() + " has no " + format_bytes(size) + " left (" +
                                          format_bytes(Bytes(static_cast<int64_t>(free))) + " of " +
                                          format_bytes(Bytes(static_cast<int64_t>(total))) +
                                          " free): " + cudaGetErrorString(status));
}

Result<DeviceBuffer> CudaDevice::allocate_pinned(Bytes size) {
  ++allocations_;
  if (size.value() == 0) return DeviceBuffer();
  void* data = nullptr;
  const auto status = cudaHostAlloc(&data, static_cast<size_t>(size.value()), cudaHostAllocDefault);
  if (status == cudaSuccess)
    return DeviceBuffer(data, size, [](void* memory) { cudaFreeHost(memory); });
  cudaGetLastError();  // a refused allocation is no fault of the next launch
  return fail(ErrorCode::kDeviceLost, name() + ": no " + format_bytes(size) +
                                          " of pinned host memory: " + cudaGetErrorString(status));
}

Result<Unit> CudaDevice::copy_in(void* device, std::span<const std::byte> host) {
  check(cudaMemcpyAsync(device, host.data(), host.size(), cudaMemcpyHostToDevice, stream_),
        "copy to the device");
  return synchronize();
}

Result<Unit> CudaDevice::copy_out(std::span<std::byte> host, const void* device) {
  check(cudaMemcpyAsync(host.data(), device, host.size(), cudaMemcpyDeviceToHost, stream_),
        "copy from the device");
  return synchronize();
}

Result<Unit> CudaDevice::synchronize() {
  check(cudaStreamSynchronize(stream_), "kernel");
  if (fault_.empty()) return Unit{};
  return fail(ErrorCode::kDeviceLost, std::exchange(fault_, {}));
}

void CudaDevice::parallel_for(int64_t, const std::function<void(int64_t, int)>&) {
  MOTLEY_CHECK(false, "parallel_for on a GPU, whose memory the host cannot reach");
}

void CudaDevice::note_fault(const char* what, const char* reason) {
  if (fault_.empty()) fault_ = name() + ": " + what + ": " + reason;
}

void CudaDevice::check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) note_fault(what, cudaGetErrorString(status));
}

void CudaDevice::check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS) note_fault(what, cublasGetStatusString(status));
}

}  // namespace motley::cuda
