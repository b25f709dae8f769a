#pragma once
// Stands for CUDA's header of this name, see cuda_runtime.h: bfloat16 as Motley's kernels use it.

#include "core/reduced_floats.h"
#include "tests/support/cuda_on_host/vectors.h"

struct __nv_bfloat16 {
  uint16_t bits;
};
struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};

inline float __bfloat162float(__nv_bfloat16 x) { return motley::Bf16::widen(x.bits); }
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return {motley::Bf16::round(x)}; }
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
  return {__float2bfloat16_rn(x), __float2bfloat16_rn(y)};
}
inline float2 __bfloat1622float2(__nv_bfloat162 x) {
  return {__bfloat162float(x.x), __bfloat162float(x.y)};
}
