#pragma once
// What an operand in reduced precision is stored as. Kernels compute in float.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "core/precision.h"

namespace motley::cuda {

template <Precision kPrecision>
struct Stored {
  using Type = float;
};
template <>
struct Stored<Precision::kBf16> {
  using Type = __nv_bfloat16;
};
template <>
struct Stored<Precision::kFp16> {
  using Type = __half;
};

/// Of ElementType::kReduced on a device that computes in this precision.
template <Precision kPrecision>
using Element = typename Stored<kPrecision>::Type;

__device__ inline float wide(float x) { return x; }
__device__ inline float wide(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ inline float wide(__half x) { return __half2float(x); }
__device__ inline int64_t wide(int64_t x) { return x; }

/// Stores to the nearest, ties to even.
__device__ inline void put(float* out, float x) { *out = x; }
__device__ inline void put(__nv_bfloat16* out, float x) { *out = __float2bfloat16_rn(x); }
__device__ inline void put(__half* out, float x) { *out = __float2half_rn(x); }
__device__ inline void put(int64_t* out, int64_t x) { *out = x; }

/// Stores two neighbours, of half the size in one conversion.
template <class T, class From>
__device__ void put_pair(T* out, From x, From y) {
  put(out, x);
  put(out + 1, y);
}
template <>
__device__ inline void put_pair(__nv_bfloat16* out, float x, float y) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(x, y);
  out[0] = pair.x;
  out[1] = pair.y;
}
template <>
__device__ inline void put_pair(__half* out, float x, float y) {
  const __half2 pair = __floats2half2_rn(x, y);
  out[0] = pair.x;
  out[1] = pair.y;
}

}  // namespace motley::cuda

/// Makes a kernel's function for every precision that GPUs compute in.
#define MOTLEY_IN_EACH_PRECISION(operation, Args)                                      \
  template void operation<::motley::Precision::kFp32>(::motley::Device&, const Args&); \
  template void operation<::motley::Precision::kBf16>(::motley::Device&, const Args&); \
  template void operation<::motley::Precision::kFp16>(::motley::Device&, const Args&)
