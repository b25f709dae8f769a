// The CUDA runtime on the CPU: memory, streams, events and graphs. Streams hold closures that run
// when somebody waits; whoever reads a result without waiting reads what was there before.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/check.h"
#include "tests/support/emulated_stream.h"

using Work = std::function<void()>;

struct CUstream_st final : motley::testing::EmulatedStream {
  void enqueue(std::function<bool()> piece) override;

  std::deque<std::function<bool()>> queue;
  int64_t enqueued = 0, done = 0;
  CUgraph_st* capturing = nullptr;
  int device = 0;
};
struct CUevent_st {
  CUstream_st* stream = nullptr;  // null: never recorded
  int64_t position = 0;           // of the work it stands behind
};
struct CUgraph_st {
  std::vector<Work> nodes;
};
struct CUgraphExec_st {
  std::vector<Work> nodes;
};

namespace {

constexpr size_t kSharedWithoutAsking = size_t{48} << 10;
constexpr unsigned kMostThreads = 1024, kMostBlocksYZ = 65535;

/// What the emulated GPU is, from MOTLEY_CUDA_ON_HOST="sm_80,memory=1073741824,devices=1" (any part
/// may be left out).
struct Machine {
  int capability = 90;
  size_t memory = size_t{4} << 30;
  int devices = 1;

  Machine() {
    const char* text = std::getenv("MOTLEY_CUDA_ON_HOST");
    const std::string given = text == nullptr ? "" : text;
    capability = static_cast<int>(number_after(given, "sm_", capability));
    memory = static_cast<size_t>(number_after(given, "memory=", static_cast<int64_t>(memory)));
    devices = static_cast<int>(number_after(given, "devices=", devices));
  }
  /// Shared memory of a block that asks for it, as the CUDA C++ Programming Guide has it.
  size_t most_shared() const {
    static const std::map<int, size_t> kKibibytes{{70, 96}, {75, 64}, {80, 163}, {90, 227}};
    const bool small = capability == 86 || capability == 89 || capability >= 120;
    return (small ? 99 : std::prev(kKibibytes.upper_bound(std::max(capability, 70)))->second) << 10;
  }
  static int64_t number_after(const std::string& text, const std::string& word, int64_t otherwise) {
    const size_t at = text.find(word);
    return at == std::string::npos ? otherwise : std::stoll(text.substr(at + word.size()));
  }
};

struct Runtime {
  std::recursive_mutex mutex;
  Machine machine;
  cudaError_t last = cudaSuccess;
  size_t used = 0;
  using Blocks = std::map<const std::byte*, size_t>;  // by address: size
  Blocks allocated, pinned, managed;
  std::map<const void*, size_t> shared_limits;
  std::vector<CUstream_st*> streams;
  CUstream_st null_stream;
};

Runtime& runtime() {
  static Runtime instance;
  return instance;
}

thread_local int current_device = 0;
thread_local int locks_held = 0;

struct Lock {
  explicit Lock(std::recursive_mutex& mutex) : held(mutex) { ++locks_held; }
  ~Lock() { --locks_held; }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

  std::scoped_lock<std::recursive_mutex> held;
};

/// Other threads come to their turn, however often this one has locked.
void let_others() {
  for (int i = 0; i < locks_held; ++i) runtime().mutex.unlock();
  std::this_thread::yield();
  for (int i = 0; i < locks_held; ++i) runtime().mutex.lock();
}

cudaError_t note(cudaError_t status) {
  if (status != cudaSuccess) runtime().last = status;
  return status;
}

/// Whether it came so far; a piece that is not done stands in the way.
bool run_until(CUstream_st& stream, int64_t position) {
  while (stream.done < position) {
    if (!stream.queue.front()()) return false;
    stream.queue.pop_front();
    ++stream.done;
  }
  return true;
}
void wait_until(CUstream_st& stream, int64_t position) {
  while (!run_until(stream, position)) let_others();
}
void drain(CUstream_st& stream) { wait_until(stream, stream.enqueued); }
/// All of this device: another's may have to wait for what this one has yet to do.
void drain_all() {
  drain(runtime().null_stream);
  for (size_t i = 0; i < runtime().streams.size(); ++i)
    if (runtime().streams[i]->device == current_device) drain(*runtime().streams[i]);
}

/// The null stream is in order with all others.
CUstream_st& stream_of(cudaStream_t stream) {
  if (stream != nullptr) return *stream;
  drain_all();
  return runtime().null_stream;
}

bool within(const Runtime::Blocks& blocks, const void* address) {
  const auto* at = static_cast<const std::byte*>(address);
  auto after = blocks.upper_bound(at);
  if (after == blocks.begin()) return false;
  --after;
  return at < after->first + after->second;
}
bool is_pinned(const void* address) { return within(runtime().pinned, address); }
bool on_device(const void* address) {
  return within(runtime().allocated, address) || within(runtime().managed, address);
}

void* aligned(size_t size) {
  constexpr size_t kAlignment = 256;
  return std::aligned_alloc(kAlignment, (size + kAlignment - 1) / kAlignment * kAlignment);
}

}  // namespace

// --- errors and devices

const char* cudaGetErrorName(cudaError_t status) {
  switch (status) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorStreamCaptureUnsupported:
      return "cudaErrorStreamCaptureUnsupported";
    default:
      return "cudaError";
  }
}
const char* cudaGetErrorString(cudaError_t status) {
  return status == cudaErrorMemoryAllocation ? "out of memory" : cudaGetErrorName(status);
}
cudaError_t cudaGetLastError() { return std::exchange(runtime().last, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return runtime().last; }

cudaError_t cudaGetDeviceCount(int* count) {
  *count = runtime().machine.devices;
  return *count > 0 ? cudaSuccess : note(cudaErrorNoDevice);
}
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= runtime().machine.devices) return note(cudaErrorInvalidDevice);
  current_device = device;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  const Machine& machine = runtime().machine;
  if (device < 0 || device >= machine.devices) return note(cudaErrorInvalidDevice);
  *properties = {};
  std::snprintf(properties->name, sizeof(properties->name), "CUDA on the host");
  properties->uuid.bytes[15] = static_cast<char>(device);
  properties->totalGlobalMem = machine.memory;
  properties->sharedMemPerBlock = kSharedWithoutAsking;
  properties->sharedMemPerBlockOptin = machine.most_shared();
  properties->major = machine.capability / 10;
  properties->minor = machine.capability % 10;
  properties->multiProcessorCount = 2;
  properties->concurrentManagedAccess = 1;
  properties->l2CacheSize = 1 << 20;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp properties;
  const auto status = cudaGetDeviceProperties(&properties, device);
  if (status != cudaSuccess) return status;
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = properties.multiProcessorCount;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = properties.major;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = properties.minor;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(properties.sharedMemPerBlockOptin);
      break;
  }
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int size, int device) {
  std::snprintf(text, static_cast<size_t>(size), "0000:%02x:00.0", device);
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }
cudaError_t cudaDeviceSynchronize() {
  const Lock lock(runtime().mutex);
  drain_all();
  return cudaSuccess;
}

// --- memory

cudaError_t cudaMalloc(void** memory, size_t size) {
  const Lock lock(runtime().mutex);
  Runtime& self = runtime();
  if (self.used + size > self.machine.memory) return note(cudaErrorMemoryAllocation);
  *memory = aligned(size);
  std::memset(*memory, 0xff, size);  // NaN, to whoever reads before writing
  self.used += size;
  self.allocated[static_cast<std::byte*>(*memory)] = size;
  return cudaSuccess;
}
/// There may be more of it than the device holds.
cudaError_t cudaMallocManaged(void** memory, size_t size, unsigned) {
  const Lock lock(runtime().mutex);
  *memory = aligned(size);
  if (*memory == nullptr) return note(cudaErrorMemoryAllocation);
  std::memset(*memory, 0xff, size);
  runtime().managed[static_cast<std::byte*>(*memory)] = size;
  return cudaSuccess;
}
cudaError_t cudaMemAdvise(const void* memory, size_t, cudaMemoryAdvise, cudaMemLocation where) {
  const Lock lock(runtime().mutex);
  const bool sensible = within(runtime().managed, memory) &&
                        where.type == cudaMemLocationTypeDevice && where.id >= 0 &&
                        where.id < runtime().machine.devices;
  return sensible ? cudaSuccess : note(cudaErrorInvalidValue);
}
cudaError_t cudaFree(void* memory) {
  const Lock lock(runtime().mutex);
  if (memory == nullptr) return cudaSuccess;
  drain_all();
  const auto found = runtime().allocated.find(static_cast<std::byte*>(memory));
  if (runtime().managed.erase(static_cast<std::byte*>(memory)) > 0) {
    std::free(memory);
    return cudaSuccess;
  }
  if (found == runtime().allocated.end()) return note(cudaErrorInvalidValue);
  runtime().used -= found->second;
  runtime().allocated.erase(found);
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** memory, size_t size, unsigned) {
  const Lock lock(runtime().mutex);
  *memory = aligned(size);
  runtime().pinned[static_cast<std::byte*>(*memory)] = size;
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) {
  const Lock lock(runtime().mutex);
  drain_all();
  runtime().pinned.erase(static_cast<std::byte*>(memory));
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *total = runtime().machine.memory;
  *free = *total - runtime().used;
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t size, cudaMemcpyKind,
                            cudaStream_t stream) {
  const Lock lock(runtime().mutex);
  if (size == 0) return cudaSuccess;
  CUstream_st& on = stream_of(stream);
  if (on_device(from) || is_pinned(from)) {
    const auto status = motley_enqueue(stream, [=] { std::memcpy(to, from, size); });
    // To pageable memory the call returns when the copy is there.
    if (!on_device(to) && !is_pinned(to) && on.capturing == nullptr) drain(on);
    return status;
  }
  // From pageable memory the call returns when the source has been read.
  const auto* bytes = static_cast<const std::byte*>(from);
  return motley_enqueue(stream, [to, copy = std::vector<std::byte>(bytes, bytes + size)] {
    std::memcpy(to, copy.data(), copy.size());
  });
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t size, cudaMemcpyKind kind) {
  const auto status = cudaMemcpyAsync(to, from, size, kind, nullptr);
  return status != cudaSuccess ? status : cudaDeviceSynchronize();
}
cudaError_t cudaMemsetAsync(void* at, int value, size_t size, cudaStream_t stream) {
  return motley_enqueue(stream, [=] { std::memset(at, value, size); });
}
cudaError_t cudaMemset(void* at, int value, size_t size) {
  return cudaMemsetAsync(at, value, size, nullptr);
}

// --- streams and events

void CUstream_st::enqueue(std::function<bool()> piece) {
  const Lock lock(runtime().mutex);
  if (capturing != nullptr) {
    capturing->nodes.push_back([piece = std::move(piece)] {
      while (!piece()) let_others();
    });
    return;
  }
  queue.push_back(std::move(piece));
  ++enqueued;
}
cudaError_t motley_enqueue(cudaStream_t stream, Work work) {
  const Lock lock(runtime().mutex);
  CUstream_st& on = stream_of(stream);
  if (on.capturing != nullptr) {
    on.capturing->nodes.push_back(std::move(work));
    return cudaSuccess;
  }
  on.enqueue([work = std::move(work)] {
    work();
    return true;
  });
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  const Lock lock(runtime().mutex);
  *stream = new CUstream_st;
  (*stream)->device = current_device;
  runtime().streams.push_back(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const Lock lock(runtime().mutex);
  drain(*stream);
  std::erase(runtime().streams, stream);
  motley_forget_stream(stream);
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const Lock lock(runtime().mutex);
  CUstream_st& on = stream_of(stream);
  if (on.capturing != nullptr) return note(cudaErrorStreamCaptureUnsupported);
  drain(on);
  return cudaSuccess;
}
/// Somebody who asks often enough waits, too: work goes on by one piece.
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  const Lock lock(runtime().mutex);
  CUstream_st& on = stream_of(stream);
  if (on.capturing != nullptr) return note(cudaErrorStreamCaptureUnsupported);
  if (on.done == on.enqueued) return cudaSuccess;
  run_until(on, on.done + 1);
  return cudaErrorNotReady;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const Lock lock(runtime().mutex);
  CUstream_st& on = stream_of(stream);
  if (on.capturing != nullptr) return note(cudaErrorStreamCaptureUnsupported);
  *event = {.stream = &on, .position = on.enqueued};
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (event->stream == nullptr) return cudaSuccess;
  const Lock lock(runtime().mutex);
  stream_of(stream).enqueue(
      [on = event->stream, position = event->position] { return run_until(*on, position); });
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const Lock lock(runtime().mutex);
  if (event->stream != nullptr) wait_until(*event->stream, event->position);
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const bool passed = event->stream == nullptr || event->stream->done >= event->position;
  return passed ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  *milliseconds = 1;  // no clock runs here
  return cudaSuccess;
}

// --- graphs

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  const Lock lock(runtime().mutex);
  stream->capturing = new CUgraph_st;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const Lock lock(runtime().mutex);
  *graph = std::exchange(stream->capturing, nullptr);
  return *graph == nullptr ? note(cudaErrorInvalidValue) : cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status =
      stream->capturing != nullptr ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
  *executable = new CUgraphExec_st{graph->nodes};
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  for (const Work& node : executable->nodes) motley_enqueue(stream, node);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}

// --- launches

cudaError_t motley_set_shared_limit(const void* kernel, size_t bytes) {
  const Lock lock(runtime().mutex);
  if (bytes > runtime().machine.most_shared()) return note(cudaErrorInvalidValue);
  runtime().shared_limits[kernel] = bytes;
  return cudaSuccess;
}
cudaError_t motley_check_launch(const void* kernel, const cudaLaunchConfig_t& shape) {
  const Lock lock(runtime().mutex);
  const auto allowed = runtime().shared_limits.find(kernel);
  const size_t most_shared =
      allowed == runtime().shared_limits.end() ? kSharedWithoutAsking : allowed->second;
  const bool fits = shape.gridDim.count() > 0 && shape.gridDim.y <= kMostBlocksYZ &&
                    shape.gridDim.z <= kMostBlocksYZ && shape.blockDim.count() > 0 &&
                    shape.blockDim.count() <= kMostThreads && shape.dynamicSmemBytes <= most_shared;
  return fits ? cudaSuccess : note(cudaErrorInvalidConfiguration);
}
