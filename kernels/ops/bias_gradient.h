#pragma once
#include "kernels/operand.h"

namespace motley {

/// out[n] = Σ_rows in[row, n] + (accumulate ? out : 0). Rows are summed in a fixed tree that
/// depends on `rows` alone.
struct BiasGradientArgs {
  Address in, out;
  int64_t rows = 0, n = 0;
  bool accumulate = false;

  double flops() const { return static_cast<double>(rows) * static_cast<double>(n); }
  template <class V>
  void operands(V&& v) {
    v.read(reduced(in, rows * n));
    if (accumulate)
      v.update(full(out, n));
    else
      v.write(full(out, n));
  }
};

}  // namespace motley
