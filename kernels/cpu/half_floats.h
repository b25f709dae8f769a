#pragma once
// Many numbers to IEEE half precision and back, with the instructions of the kernels' instruction
// set; the same bits as Fp16 of core/reduced_floats.h. One thread.

#include <cstdint>

namespace motley::cpu {

/// out[i] = in[i]·scale, to the nearest, ties to even.
void round_to_fp16(const float* in, float scale, uint16_t* out, int64_t count);
/// out[i] = in[i]·scale
void widen_fp16(const uint16_t* in, float scale, float* out, int64_t count);

}  // namespace motley::cpu
