#pragma once
// Stands for the CUDA runtime's header of this name where CUDA sources are compiled for the CPU
// (tests/support/cuda_on_host): what Motley's kernels and CudaDevice use of it, with our own
// declarations after the CUDA Runtime API reference. Work of a stream is done when somebody waits
// for it, not before, so that a host that does not wait is found out.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <utility>

#include "tests/support/cuda_on_host/device_threads.h"
#include "tests/support/cuda_on_host/vectors.h"

#define __global__
#define __device__
#define __host__
#define __constant__
#define __shared__ static
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(bytes) alignas(bytes)
#define __grid_constant__

#define CUDART_VERSION 13000

// --- threads

inline const auto& threadIdx = motley::cuda_on_host::place().thread;
inline const auto& blockIdx = motley::cuda_on_host::place().block;
inline const auto& blockDim = motley::cuda_on_host::place().block_extent;
inline const auto& gridDim = motley::cuda_on_host::place().grid_extent;

inline void __syncthreads() { ::motley::cuda_on_host::block_barrier(); }
inline void __threadfence() {}

/// What lane `source` of the warp gives; of this lane where there is no such lane.
template <class T>
T motley_shuffle(T value, int source) {
  const std::byte* given = ::motley::cuda_on_host::warp_exchange(&value, sizeof(T));
  if (source < 0 || source >= 32) return value;
  T result;
  std::memcpy(&result, given + static_cast<size_t>(source) * ::motley::cuda_on_host::kMostExchanged,
              sizeof(T));
  return result;
}
inline void __syncwarp(unsigned = 0xffffffffu) { motley_shuffle(0, 0); }
template <class T>
T __shfl_sync(unsigned, T value, int source) {
  return motley_shuffle(value, source % 32);
}
template <class T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  return motley_shuffle(value, ::motley::cuda_on_host::lane() ^ mask);
}
template <class T>
T __shfl_down_sync(unsigned, T value, int delta) {
  return motley_shuffle(value, ::motley::cuda_on_host::lane() + delta);
}
template <class T>
T __shfl_up_sync(unsigned, T value, int delta) {
  return motley_shuffle(value, ::motley::cuda_on_host::lane() - delta);
}

// Votes of the whole warp.
template <class T>
unsigned __match_any_sync(unsigned, T value) {
  const std::byte* given = ::motley::cuda_on_host::warp_exchange(&value, sizeof(T));
  unsigned lanes = 0;
  for (size_t lane = 0; lane < 32; ++lane) {
    T other;
    std::memcpy(&other, given + lane * ::motley::cuda_on_host::kMostExchanged, sizeof(T));
    if (other == value) lanes |= 1u << lane;
  }
  return lanes;
}
inline unsigned __ballot_sync(unsigned, int predicate) {
  const unsigned same = __match_any_sync(0xffffffffu, predicate != 0);
  return predicate != 0 ? same : ~same;
}
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline int __ffs(unsigned bits) { return __builtin_ffs(static_cast<int>(bits)); }

// Threads of the whole process take turns, so plain sums are atomic.
template <class T>
T atomicAdd(T* at, T value) {
  return std::exchange(*at, *at + value);
}
template <class T>
T atomicMax(T* at, T value) {
  return std::exchange(*at, value > *at ? value : *at);
}
template <class T>
T atomicExch(T* at, T value) {
  return std::exchange(*at, value);
}

// --- arithmetic and memory

using std::isfinite;
using std::isinf;
using std::isnan;
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float rsqrtf(float x) { return 1 / std::sqrt(x); }
inline float __frcp_rn(float x) { return 1 / x; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline long long __double2ll_rn(double x) { return std::llrint(x); }
inline float __ll2float_rn(long long x) { return static_cast<float>(x); }
inline float __uint_as_float(unsigned bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}
inline double __longlong_as_double(long long bits) {
  double value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}
inline unsigned __float_as_uint(float value) {
  unsigned bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}
template <class T>
T __ldg(const T* at) {
  return *at;
}
template <class T>
T __ldcs(const T* at) {
  return *at;
}
template <class T>
void __stcs(T* at, T value) {
  *at = value;
}

// --- the runtime

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInsufficientDriver = 35,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorNoKernelImageForDevice = 209,
  cudaErrorSymbolNotFound = 500,
  cudaErrorNotReady = 600,
  cudaErrorLaunchFailure = 719,
  cudaErrorNotSupported = 801,
  cudaErrorStreamCaptureUnsupported = 900,
};
enum cudaMemcpyKind {
  cudaMemcpyHostToHost,
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice,
  cudaMemcpyDefault
};
enum cudaDeviceAttr {
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97
};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
enum cudaStreamCaptureMode {
  cudaStreamCaptureModeGlobal,
  cudaStreamCaptureModeThreadLocal,
  cudaStreamCaptureModeRelaxed
};
enum cudaDriverEntryPointQueryResult {
  cudaDriverEntryPointSuccess = 0,
  cudaDriverEntryPointSymbolNotFound = 1
};
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone, cudaStreamCaptureStatusActive };

struct cudaUUID_t {
  char bytes[16];
};
struct cudaDeviceProp {
  char name[256];
  cudaUUID_t uuid;
  size_t totalGlobalMem;
  size_t sharedMemPerBlock, sharedMemPerBlockOptin;
  int major, minor;
  int multiProcessorCount;
  int l2CacheSize;
  int concurrentManagedAccess;
};

enum cudaMemoryAdvise { cudaMemAdviseSetPreferredLocation = 3 };
enum cudaMemLocationType { cudaMemLocationTypeInvalid = 0, cudaMemLocationTypeDevice = 1 };
struct cudaMemLocation {
  cudaMemLocationType type;
  int id;
};

using cudaStream_t = struct CUstream_st*;
using cudaEvent_t = struct CUevent_st*;
using cudaGraph_t = struct CUgraph_st*;
using cudaGraphExec_t = struct CUgraphExec_st*;

struct dim3 : motley::cuda_on_host::Extent3 {
  constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : Extent3{a, b, c} {}
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
  void* attrs = nullptr;
  unsigned numAttrs = 0;
};

inline constexpr unsigned cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2,
                          cudaHostAllocDefault = 0, cudaHostAllocPortable = 1,
                          cudaMemAttachGlobal = 1, cudaEnableDefault = 0;

const char* cudaGetErrorString(cudaError_t);
const char* cudaGetErrorName(cudaError_t);
cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();

cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int);
cudaError_t cudaGetDevice(int*);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp*, int device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int device);
cudaError_t cudaDeviceGetPCIBusId(char* text, int size, int device);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaDriverGetVersion(int*);
cudaError_t cudaRuntimeGetVersion(int*);
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned version,
                                             unsigned long long flags,
                                             cudaDriverEntryPointQueryResult*);

cudaError_t cudaMalloc(void** memory, size_t size);
template <class T>
cudaError_t cudaMalloc(T** memory, size_t size) {
  return cudaMalloc(reinterpret_cast<void**>(memory), size);
}
cudaError_t cudaFree(void*);
cudaError_t cudaMallocManaged(void** memory, size_t size, unsigned flags = cudaMemAttachGlobal);
cudaError_t cudaMemAdvise(const void* memory, size_t size, cudaMemoryAdvise, cudaMemLocation);
cudaError_t cudaHostAlloc(void** memory, size_t size, unsigned flags);
cudaError_t cudaFreeHost(void*);
cudaError_t cudaMemGetInfo(size_t* free, size_t* total);
cudaError_t cudaMemcpy(void* to, const void* from, size_t size, cudaMemcpyKind);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t size, cudaMemcpyKind, cudaStream_t);
cudaError_t cudaMemset(void* at, int value, size_t size);
cudaError_t cudaMemsetAsync(void* at, int value, size_t size, cudaStream_t);

cudaError_t cudaStreamCreateWithFlags(cudaStream_t*, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t);
/// Another stream may get its address.
void motley_forget_stream(cudaStream_t);
cudaError_t cudaStreamSynchronize(cudaStream_t);
cudaError_t cudaStreamQuery(cudaStream_t);
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned flags = 0);
cudaError_t cudaEventCreate(cudaEvent_t*);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t*, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t);
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t);
cudaError_t cudaEventSynchronize(cudaEvent_t);
cudaError_t cudaEventQuery(cudaEvent_t);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to);

cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode);
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t*);
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus*);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t*, cudaGraph_t, unsigned long long flags = 0);
cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t);
cudaError_t cudaGraphDestroy(cudaGraph_t);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t);

/// Puts work on a stream: kernels, copies, calls of libraries.
cudaError_t motley_enqueue(cudaStream_t, std::function<void()> work);
/// Remembers how much dynamic shared memory a kernel may have.
cudaError_t motley_set_shared_limit(const void* kernel, size_t bytes);
/// What is wrong with such a launch on any GPU.
cudaError_t motley_check_launch(const void* kernel, const cudaLaunchConfig_t&);

template <class Function>
cudaError_t cudaFuncSetAttribute(Function* kernel, cudaFuncAttribute, int value) {
  return motley_set_shared_limit(reinterpret_cast<const void*>(kernel), static_cast<size_t>(value));
}

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  const auto status = motley_check_launch(reinterpret_cast<const void*>(kernel), *config);
  if (status != cudaSuccess) return status;
  return motley_enqueue(
      config->stream,
      [kernel, shape = *config,
       operands = std::tuple<Parameters...>(std::forward<Arguments>(arguments)...)] {
        motley::cuda_on_host::run_grid(shape.gridDim, shape.blockDim, shape.dynamicSmemBytes,
                                       [&] { std::apply(kernel, operands); });
      });
}
