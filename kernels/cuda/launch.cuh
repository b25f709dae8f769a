#pragma once
// How work is spread over a GPU: by shape alone.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "kernels/cuda/cuda_device.cuh"

namespace motley::cuda {

inline constexpr int kBlockThreads = 256;
inline constexpr int64_t kMostBlocksAlongY = 65535;  // and along z

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

struct LaunchShape {
  dim3 blocks;
  dim3 threads = kBlockThreads;
  size_t shared_bytes = 0;  ///< dynamic_shared()
};

/// What a kernel may have without asking for it.
constexpr size_t kSharedWithoutAsking = size_t{48} << 10;

/// Puts kernel(arguments...) on the device's stream; a launch that is refused is the device's
/// fault, under the name `what`.
template <class... Parameters, class... Arguments>
void launch(CudaDevice& gpu, const char* what, const LaunchShape& shape,
            void (*kernel)(Parameters...), Arguments&&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = shape.blocks;
  config.blockDim = shape.threads;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = gpu.stream();
  if (shape.shared_bytes > kSharedWithoutAsking)
    gpu.check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   static_cast<int>(shape.shared_bytes)),
              what);
  gpu.check(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...), what);
}

/// The block's dynamic shared memory, 16-byte aligned.
template <class T>
__device__ T* dynamic_shared() {
#ifdef __CUDACC__
  extern __shared__ __align__(16) unsigned char motley_shared[];
  return reinterpret_cast<T*>(motley_shared);
#else  // compiled for the CPU by tests/support/cuda_on_host
  return reinterpret_cast<T*>(motley::cuda_on_host::dynamic_shared());
#endif
}

/// Blocks for one thread per element; none for no elements, which the caller must not launch.
inline unsigned blocks_for(int64_t count) {
  return static_cast<unsigned>(ceil_div(count, kBlockThreads));
}

/// Blocks of kBlockThreads threads that each take `a_thread` units of work and go on from there
/// (a stride of the grid): a few rounds of what the GPU runs at a time.
inline unsigned blocks_in_strides(const CudaDevice& gpu, int64_t work, int64_t a_thread) {
  constexpr int64_t kBlocksAMultiprocessor = 32;
  const int64_t enough = ceil_div(work, a_thread * kBlockThreads);
  return static_cast<unsigned>(
      std::clamp<int64_t>(enough, 1, gpu.multiprocessors() * kBlocksAMultiprocessor));
}

/// The element or unit of work at which this thread begins.
__device__ inline int64_t element_index() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

struct SumOf {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct MaxOf {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

/// Combines one value of each thread of the block, in a tree fixed by the size of the block; every
/// thread gets the result. For blocks of whole warps, called by all threads.
template <class T, class Combine>
__device__ T block_reduce(T value, T neutral, Combine combine) {
  constexpr unsigned kAll = 0xffffffffu;
  __shared__ T warps[32];
  for (int offset = 16; offset > 0; offset /= 2)
    value = combine(value, __shfl_xor_sync(kAll, value, offset));
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  __syncthreads();  // the array may still be read from an earlier call
  if (lane == 0) warps[warp] = value;
  __syncthreads();
  value = lane < blockDim.x / 32 ? warps[lane] : neutral;
  for (int offset = 16; offset > 0; offset /= 2)
    value = combine(value, __shfl_xor_sync(kAll, value, offset));
  return value;
}

template <class T>
__device__ T block_sum(T value) {
  return block_reduce(value, T(0), SumOf());
}
__device__ inline float block_max(float value) { return block_reduce(value, -INFINITY, MaxOf()); }

}  // namespace motley::cuda
