#pragma once
// Sums whose result does not depend on their order: 64-bit fixed point (numerics: exact, DESIGN.md
// §1.4).

#include "kernels/operand.h"

namespace motley {

/// Largest magnitude a single quantised contribution may have: leaves room to add 2^20 of them.
inline constexpr double kFixedLimit = 4398046511104.0;  // 2^42

/// acc[i] += llrint(x[i] · 2^exponent) as int64, computed in double. A contribution that is not
/// finite or reaches 2^42 in magnitude adds nothing and sets *overflow (int64) to 1.
struct AccumulateFixedArgs {
  Address x, acc, overflow;
  Address exponent;  ///< int32
  int64_t count = 0;

  double flops() const { return 2.0 * static_cast<double>(count); }
  template <class V>
  void operands(V&& v) {
    v.read(full(x, count));
    v.update(raw(acc, count * 8));
    v.update(raw(overflow, 8));
    v.read(raw(exponent, sizeof(int32_t)));
  }
};

/// out[i] = acc[i] · 2^-exponent in the device's type, rounded once. out may not alias acc.
struct FromFixedArgs {
  Address acc, out;
  int64_t count = 0;
  int exponent = 0;

  double flops() const { return static_cast<double>(count); }
  template <class V>
  void operands(V&& v) {
    v.read(raw(acc, count * 8));
    v.write(full(out, count));
  }
};

}  // namespace motley
