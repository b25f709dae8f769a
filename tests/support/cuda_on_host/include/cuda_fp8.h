#pragma once
// Stands for CUDA's header of this name, see cuda_runtime.h: the conversion to 8-bit floats that
// Motley's kernels use.

#include "core/reduced_floats.h"
#include "tests/support/cuda_on_host/vectors.h"

enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };
using __nv_fp8x2_storage_t = unsigned short;

/// Saturating, whatever is asked for.
inline __nv_fp8x2_storage_t __nv_cvt_float2_to_fp8x2(float2 pair, __nv_saturation_t,
                                                     __nv_fp8_interpretation_t kind) {
  const auto bits = [kind](float x) -> unsigned {
    return kind == __NV_E4M3 ? motley::E4m3::round(x) : motley::E5m2::round(x);
  };
  return static_cast<__nv_fp8x2_storage_t>(bits(pair.x) | bits(pair.y) << 8);
}
