#pragma once
#include <algorithm>
#include <cmath>

#include "kernels/operand.h"

namespace motley {

/// Dropout (Srivastava et al. 2014) scaled while training: out[s,e] = keep ? x[s,e]/(1 - rate) : 0
/// for element e of sample s; out may be x. Applied to the gradient of `out` it is its own backward
/// pass.
///
/// Kept where a draw is not below rate·2^32. The draw is word e % 4 of the block of core/philox.h
/// with key `seed` and counter {e / 4, position[1] + s, position[0], 256·site + kDropout}: the mask
/// depends on seed, step, sample of the global batch, site and element alone, so never on the plan
/// or on how the batch is cut.
struct DropoutArgs {
  Address x, out;    ///< [samples, elements_per_sample]
  Address position;  ///< int64 {step, first sample's number in the step's global batch}, both below
                     ///< 2^32; read when the op runs, so that programs need not be compiled again
  uint64_t seed = 0;
  int64_t site = 0;  ///< which dropout of the model (layer·4 + place), below 2^24
  double rate = 0;   ///< in [0, 1)
  int64_t samples = 0;
  int64_t elements_per_sample = 0;  ///< at most 2^34

  double flops() const {
    return static_cast<double>(samples) * static_cast<double>(elements_per_sample);
  }
  /// Lowest draw that is kept: the rate rounded to a multiple of 2^-32.
  uint32_t threshold() const {
    MOTLEY_CHECK(rate >= 0 && rate < 1, "a dropout rate is in [0, 1)");
    return static_cast<uint32_t>(std::min(std::nearbyint(rate * 0x1p32), 0x1p32 - 1));
  }
  template <class V>
  void operands(V&& v) {
    v.read(reduced(x, samples * elements_per_sample));
    v.read(raw(position, 2 * sizeof(int64_t)));
    v.write(reduced(out, samples * elements_per_sample));
  }
};

}  // namespace motley
