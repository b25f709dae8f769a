#include "kernels/cpu/half_floats.h"

#include "core/reduced_floats.h"

namespace motley::cpu {

void round_to_fp16(const float* in, float scale, uint16_t* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] = Fp16::round(in[i] * scale);
}

void widen_fp16(const uint16_t* in, float scale, float* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] = Fp16::widen(in[i]) * scale;
}

}  // namespace motley::cpu
