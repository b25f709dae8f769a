// What green contexts need of the CUDA driver: a GPU of 132 multiprocessors, dealt out in groups of
// eight as sm_90 does. Kernels on a context's streams run as all others here; which multiprocessors
// they would have is kept for tests.

#include <cudaTypedefs.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace {

constexpr unsigned kMultiprocessors = 132, kGroup = 8;

}  // namespace

struct CUdevResourceDesc_st {
  std::set<unsigned> multiprocessors;
};
struct CUgreenCtx_st {
  std::set<unsigned> multiprocessors;
};

namespace {

std::mutex mutex;
std::map<cudaStream_t, std::set<unsigned>> streams;  // of green contexts
std::atomic<int> divisions = 0, contexts = 0;

CUresult device_get(CUdevice* device, int ordinal) {
  *device = ordinal;
  return CUDA_SUCCESS;
}
CUresult error_string(CUresult status, const char** text) {
  *text = status == CUDA_SUCCESS ? "no error" : "invalid resource configuration";
  return CUDA_SUCCESS;
}
CUresult get_resource(CUdevice, CUdevResource* all, CUdevResourceType type) {
  *all = {.type = type, .division = 0, .first = 0, .sm = {kMultiprocessors}};
  return CUDA_SUCCESS;
}
CUresult split(CUdevResource* result, unsigned* groups, const CUdevResource* input,
               CUdevResource* remaining, unsigned flags, unsigned least) {
  if (flags != 0 || remaining != nullptr || input->division != 0) return CUDA_ERROR_INVALID_VALUE;
  const unsigned size = (std::max(least, 1U) + kGroup - 1) / kGroup * kGroup;
  const unsigned possible = input->sm.smCount / size;
  *groups = result == nullptr ? possible : std::min(*groups, possible);
  if (result == nullptr) return CUDA_SUCCESS;
  const int division = ++divisions;
  for (unsigned i = 0; i < *groups; ++i)
    result[i] = {.type = input->type, .division = division, .first = i * size, .sm = {size}};
  return CUDA_SUCCESS;
}
CUresult describe(CUdevResourceDesc* description, CUdevResource* resources, unsigned count) {
  std::set<unsigned> all;
  for (unsigned i = 0; i < count; ++i) {
    if (resources[i].division != resources[0].division)
      return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    for (unsigned j = 0; j < resources[i].sm.smCount; ++j) all.insert(resources[i].first + j);
  }
  // The driver keeps descriptions for the life of the process; so does this list.
  static std::vector<std::unique_ptr<CUdevResourceDesc_st>> kept;
  const std::lock_guard lock(mutex);
  kept.push_back(std::make_unique<CUdevResourceDesc_st>(CUdevResourceDesc_st{std::move(all)}));
  *description = kept.back().get();
  return CUDA_SUCCESS;
}
CUresult create(CUgreenCtx* context, CUdevResourceDesc description, CUdevice, unsigned flags) {
  if (flags != CU_GREEN_CTX_DEFAULT_STREAM) return CUDA_ERROR_INVALID_VALUE;
  *context = new CUgreenCtx_st{description->multiprocessors};
  ++contexts;
  return CUDA_SUCCESS;
}
CUresult destroy(CUgreenCtx context) {
  delete context;
  --contexts;
  return CUDA_SUCCESS;
}
CUresult create_stream(CUstream* stream, CUgreenCtx context, unsigned flags, int) {
  if (flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking);
  const std::lock_guard lock(mutex);
  streams[*stream] = context->multiprocessors;
  return CUDA_SUCCESS;
}

template <class Function>
void* address(Function* function) {
  return reinterpret_cast<void*>(function);
}

}  // namespace

void motley_forget_stream(cudaStream_t stream) {
  const std::lock_guard lock(mutex);
  streams.erase(stream);
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned version,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  static const std::map<std::string, std::pair<unsigned, void*>> known = {
      {"cuDeviceGet", {2000, address(device_get)}},
      {"cuGetErrorString", {6000, address(error_string)}},
      {"cuDeviceGetDevResource", {12040, address(get_resource)}},
      {"cuDevSmResourceSplitByCount", {12040, address(split)}},
      {"cuDevResourceGenerateDesc", {12040, address(describe)}},
      {"cuGreenCtxCreate", {12040, address(create)}},
      {"cuGreenCtxDestroy", {12040, address(destroy)}},
      {"cuGreenCtxStreamCreate", {12050, address(create_stream)}}};
  const auto found = known.find(name);
  const bool there = found != known.end() && version >= found->second.first;
  *function = there ? found->second.second : nullptr;
  *result = there ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

extern "C" {

/// For tests: how many multiprocessors kernels on this stream have, and of which number the first
/// is; all of the GPU's but for streams of green contexts.
[[gnu::visibility("default")]] unsigned motley_on_host_multiprocessors(void* stream,
                                                                       unsigned* first) {
  const std::lock_guard lock(mutex);
  const auto found = streams.find(static_cast<cudaStream_t>(stream));
  *first = found == streams.end() ? 0 : *found->second.begin();
  return found == streams.end() ? kMultiprocessors : static_cast<unsigned>(found->second.size());
}
/// Green contexts that are open.
[[gnu::visibility("default")]] int motley_on_host_green_contexts() { return contexts; }
}
