// What lib/motley_cuda.so shows to the program: which GPUs there are, and opening one.

#include <algorithm>
#include <array>
#include <cstdio>

#include "core/nvml.h"
#include "core/version.h"
#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda_fit.h"
#include "kernels/cuda_module.h"

namespace motley::cuda {
namespace {

CudaBuild this_build() {
#ifdef __CUDACC__
  return {build_version().cuda, build_version().cuda_architectures};
#else  // compiled for the CPU (tests/support/cuda_on_host), it stands for any GPU
  return {build_version().cuda, ""};
#endif
}

CudaDriver this_driver() {
  CudaDriver driver;
  if (cudaDriverGetVersion(&driver.cuda) != cudaSuccess) driver.cuda = 0;
  if (const auto nvml = Nvml::open()) driver.version = (*nvml)->driver_version();
  return driver;
}

/// How many GPUs this process may use; why there are none in one line.
Result<int> gpu_count() {
  int count = 0;
  const auto status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess && count > 0) return count;
  cudaGetLastError();
  if (const std::string fault = driver_fault(this_build(), this_driver()); !fault.empty())
    return fail(ErrorCode::kUnsupported, "no GPU: " + fault);
  if (status == cudaErrorNoDevice || status == cudaSuccess)
    return fail(ErrorCode::kUnsupported,
                "no GPU: the driver shows none (is CUDA_VISIBLE_DEVICES set?)");
  return fail(ErrorCode::kUnsupported, std::string("no GPU: ") + cudaGetErrorString(status));
}

/// Why this build has no code for the GPU; empty when it has.
std::string fault_of(const cudaDeviceProp& properties) {
  return card_fault(this_build(), properties.name, properties.major * 10 + properties.minor);
}

/// Memory is asked of the device itself, which starts it: for `devices`, not for a training rank.
Result<FoundDevice> describe(int ordinal) {
  cudaDeviceProp properties{};
  std::array<char, 32> bus_id{};
  size_t free = 0, total = 0;
  auto status = cudaGetDeviceProperties(&properties, ordinal);
  if (status == cudaSuccess) status = cudaDeviceGetPCIBusId(bus_id.data(), bus_id.size(), ordinal);
  if (status == cudaSuccess) status = cudaSetDevice(ordinal);
  if (status == cudaSuccess) status = cudaMemGetInfo(&free, &total);
  if (status != cudaSuccess)
    return fail(ErrorCode::kUnsupported, "GPU " + std::to_string(ordinal) +
                                             " does not answer: " + cudaGetErrorString(status));
  FoundDevice found;
  found.kind = DeviceKind::kCuda;
  found.name = properties.name;
  found.uuid = uuid_text(properties);
  found.bus_id = bus_id.data();
  found.memory = Bytes(static_cast<int64_t>(total));
  found.free_memory = Bytes(static_cast<int64_t>(free));
  found.capability = "sm_" + std::to_string(properties.major * 10 + properties.minor);
  found.cores = properties.multiProcessorCount;
  found.cuda_index = ordinal;
  found.unfit = fault_of(properties);
  return found;
}

/// Of the GPU with that UUID; without one the first that this build has code for.
Result<int> ordinal_of(const std::string& uuid, int count) {
  std::string fault;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, ordinal) != cudaSuccess ||
        (!uuid.empty() && uuid_text(properties) != uuid))
      continue;
    const std::string unfit = fault_of(properties);
    if (unfit.empty()) return ordinal;
    if (fault.empty()) fault = unfit;
  }
  if (!fault.empty()) return fail(ErrorCode::kUnsupported, fault);
  return fail(ErrorCode::kNoDevice,
              uuid.empty() ? "no GPU of this host answers" : "this host shows no GPU " + uuid);
}

Result<std::unique_ptr<Device>> open(const DeviceSpec& spec, Precision precision) {
  MOTLEY_TRY(const int count, gpu_count());
  MOTLEY_TRY(const int ordinal, ordinal_of(spec.uuid, count));
  return CudaDevice::open(ordinal, precision, spec.share);
}

Result<std::vector<FoundDevice>> discover() {
  MOTLEY_TRY(const int count, gpu_count());
  std::vector<FoundDevice> devices;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    MOTLEY_TRY(auto device, describe(ordinal));
    devices.push_back(std::move(device));
  }
  std::sort(devices.begin(), devices.end(),
            [](const auto& a, const auto& b) { return a.bus_id < b.bus_id; });
  return devices;
}

}  // namespace
}  // namespace motley::cuda

extern "C" {

[[gnu::visibility("default")]] int motley_cuda_version() { return motley::kCudaModuleVersion; }

[[gnu::visibility("default")]] motley::Result<std::unique_ptr<motley::Device>> motley_cuda_open(
    const motley::DeviceSpec& spec, motley::Precision precision) {
  return motley::cuda::open(spec, precision);
}

[[gnu::visibility("default")]] motley::Result<std::vector<motley::FoundDevice>>
motley_cuda_discover() {
  return motley::cuda::discover();
}
}
