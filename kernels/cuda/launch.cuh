#pragma once
// How work is spread over a GPU: by shape alone.

#include <cuda_runtime.h>

#include <cstdint>

namespace motley::cuda {

inline constexpr int kBlockThreads = 256;

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Blocks for one thread per element; none for no elements, which the caller must not launch.
inline unsigned blocks_for(int64_t count) {
  return static_cast<unsigned>(ceil_div(count, kBlockThreads));
}

/// The element of this thread in such a launch.
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
