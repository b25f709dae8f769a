#pragma once
#include "kernels/operand.h"

namespace motley {

/// C[m,n] = op(A)·op(B) + (accumulate ? C : 0) + (bias ? bias[n] broadcast over rows : 0), all
/// row-major and dense. op(A) is A[m,k], or the transpose of A[k,m] if transpose_a; likewise op(B)
/// is B[k,n] or the transpose of B[n,k]. Bits depend on (m, n, k, transposes) alone, never on
/// threads, addresses or neighbours.
struct MatmulArgs {
  Address a, b, c;
  Address bias = {};  ///< may be null
  int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  bool accumulate = false;
  bool full_output = false;  ///< C is in full precision: a gradient of weights

  double flops() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  }
  template <class V>
  void operands(V&& v) {
    v.read(reduced(a, m * k));
    v.read(reduced(b, k * n));
    v.read(reduced(bias, n));
    const Operand output = full_output ? full(c, m * n) : reduced(c, m * n);
    if (accumulate)
      v.update(output);
    else
      v.write(output);
  }
};

}  // namespace motley
