#pragma once
// Stands for CUDA's header of this name, see cuda_runtime.h: IEEE half precision as Motley's
// kernels use it.

#include "core/reduced_floats.h"
#include "tests/support/cuda_on_host/vectors.h"

struct __half {
  uint16_t bits;
};
struct alignas(4) __half2 {
  __half x, y;
};

inline float __half2float(__half x) { return motley::Fp16::widen(x.bits); }
inline __half __float2half_rn(float x) { return {motley::Fp16::round(x)}; }
inline __half2 __floats2half2_rn(float x, float y) {
  return {__float2half_rn(x), __float2half_rn(y)};
}
inline float2 __half22float2(__half2 x) { return {__half2float(x.x), __half2float(x.y)}; }
