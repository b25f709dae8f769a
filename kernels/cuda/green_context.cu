#include <string>

#include "kernels/cuda/green_context.cuh"

#if CUDART_VERSION >= 12050

#include <cudaTypedefs.h>

#include <map>
#include <mutex>
#include <vector>

#include "kernels/multiprocessor_share.h"

namespace motley::cuda {
namespace {

constexpr int kFirstVersion = 12050;  // CUDA 12.5: streams of green contexts

/// A function of the driver; nothing where it has none of that name in that version.
template <class F>
bool find(F* function, const char* name, unsigned version) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult answer = cudaDriverEntryPointSymbolNotFound;
  const auto status =
      cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &answer);
  if (status != cudaSuccess || answer != cudaDriverEntryPointSuccess) return false;
  *function = reinterpret_cast<F>(found);
  return true;
}

}  // namespace

struct GreenContext::Driver {
  PFN_cuDeviceGet_v2000 device_of = nullptr;
  PFN_cuGetErrorString_v6000 error_string = nullptr;
  PFN_cuDeviceGetDevResource_v12040 resource_of = nullptr;
  PFN_cuDevSmResourceSplitByCount_v12040 split = nullptr;
  PFN_cuDevResourceGenerateDesc_v12040 describe = nullptr;
  PFN_cuGreenCtxCreate_v12040 create = nullptr;
  PFN_cuGreenCtxDestroy_v12040 destroy = nullptr;
  PFN_cuGreenCtxStreamCreate_v12050 create_stream = nullptr;

  bool open() {
    return find(&device_of, "cuDeviceGet", 2000) && find(&error_string, "cuGetErrorString", 6000) &&
           find(&resource_of, "cuDeviceGetDevResource", 12040) &&
           find(&split, "cuDevSmResourceSplitByCount", 12040) &&
           find(&describe, "cuDevResourceGenerateDesc", 12040) &&
           find(&create, "cuGreenCtxCreate", 12040) && find(&destroy, "cuGreenCtxDestroy", 12040) &&
           find(&create_stream, "cuGreenCtxStreamCreate", kFirstVersion);
  }

  Result<Unit> checked(CUresult status, const char* what) const {
    if (status == CUDA_SUCCESS) return Unit{};
    const char* reason = nullptr;
    error_string(status, &reason);
    return fail(ErrorCode::kDeviceLost, std::string("share of a GPU: ") + what + ": " +
                                            (reason ? reason : "unknown error"));
  }
};

namespace {

/// A GPU in groups of multiprocessors, the smallest it can be divided into.
struct DividedGpu {
  unsigned multiprocessors = 0;
  std::vector<CUdevResource> groups;
};

/// Once for each GPU of the process, whatever devices are opened: groups of one division are
/// disjoint, and a context may be made of several only if they are of the same.
template <class Driver>
Result<DividedGpu> divided(const Driver& driver, int ordinal, CUdevice device) {
  static std::mutex mutex;
  static std::map<int, DividedGpu> known;
  const std::lock_guard lock(mutex);
  if (const auto found = known.find(ordinal); found != known.end()) return found->second;
  CUdevResource all{};
  MOTLEY_TRY_VOID(driver.checked(driver.resource_of(device, &all, CU_DEV_RESOURCE_TYPE_SM),
                                 "asking for multiprocessors"));
  // Of at least one: the driver makes that the fewest which go together on this GPU.
  unsigned count = 0;
  MOTLEY_TRY_VOID(
      driver.checked(driver.split(nullptr, &count, &all, nullptr, 0, 1), "counting groups"));
  DividedGpu gpu{.multiprocessors = all.sm.smCount, .groups = std::vector<CUdevResource>(count)};
  MOTLEY_TRY_VOID(driver.checked(driver.split(gpu.groups.data(), &count, &all, nullptr, 0, 1),
                                 "dividing multiprocessors"));
  gpu.groups.resize(count);
  return known.emplace(ordinal, std::move(gpu)).first->second;
}

}  // namespace

Result<std::unique_ptr<GreenContext>> GreenContext::create(int ordinal, const ShareSpec& share,
                                                           const cudaDeviceProp& properties) {
  auto driver = std::make_unique<Driver>();
  if (!driver->open()) {
    int version = 0;
    cudaDriverGetVersion(&version);
    return fail(ErrorCode::kUnsupported,
                "the driver (CUDA " + std::to_string(version / 1000) + "." +
                    std::to_string(version % 1000 / 10) +
                    ") cannot share out multiprocessors, which takes CUDA 12.5: update it");
  }
  CUdevice device = 0;
  MOTLEY_TRY_VOID(driver->checked(driver->device_of(&device, ordinal), "asking for the GPU"));
  MOTLEY_TRY(DividedGpu gpu, divided(*driver, ordinal, device));
  if (gpu.groups.empty())
    return fail(ErrorCode::kUnsupported,
                std::string(properties.name) + " cannot share out its multiprocessors");
  MOTLEY_TRY(const GroupRange range,
             groups_of(share, {.gpu = properties.name,
                               .multiprocessors = static_cast<int>(gpu.multiprocessors),
                               .groups = static_cast<int>(gpu.groups.size()),
                               .group_size = static_cast<int>(gpu.groups[0].sm.smCount)}));
  CUdevResourceDesc description = nullptr;
  MOTLEY_TRY_VOID(driver->checked(driver->describe(&description, gpu.groups.data() + range.first,
                                                   static_cast<unsigned>(range.count)),
                                  "describing it"));
  CUgreenCtx context = nullptr;
  MOTLEY_TRY_VOID(driver->checked(
      driver->create(&context, description, device, CU_GREEN_CTX_DEFAULT_STREAM), "creating it"));
  return std::unique_ptr<GreenContext>(new GreenContext(std::move(driver), context));
}

GreenContext::GreenContext(std::unique_ptr<Driver> driver, void* context)
    : driver_(std::move(driver)), context_(context) {}

// Fails only where the GPU is lost.
GreenContext::~GreenContext() { driver_->destroy(static_cast<CUgreenCtx>(context_)); }

Result<cudaStream_t> GreenContext::create_stream() {
  CUstream stream = nullptr;
  MOTLEY_TRY_VOID(driver_->checked(
      driver_->create_stream(&stream, static_cast<CUgreenCtx>(context_), CU_STREAM_NON_BLOCKING, 0),
      "stream"));
  return stream;
}

}  // namespace motley::cuda

#else

namespace motley::cuda {

struct GreenContext::Driver {};

Result<std::unique_ptr<GreenContext>> GreenContext::create(int, const ShareSpec&,
                                                           const cudaDeviceProp&) {
  return fail(ErrorCode::kUnsupported,
              "built with CUDA " + std::to_string(CUDART_VERSION / 1000) + "." +
                  std::to_string(CUDART_VERSION % 1000 / 10) +
                  ": a share of a GPU takes a build with CUDA 12.5 or later");
}

GreenContext::~GreenContext() = default;

Result<cudaStream_t> GreenContext::create_stream() { return cudaStream_t{}; }

}  // namespace motley::cuda

#endif
