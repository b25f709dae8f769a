#pragma once
#include "kernels/address.h"

namespace motley {

/// out[r,:] = token_table[tokens[r],:] + position_table[r % context,:]; tokens int32 in [0, vocab),
/// checked by the caller.
struct EmbeddingForwardArgs {
  Address tokens, token_table, position_table, out;
  int64_t rows = 0, context = 0, width = 0, vocab = 0;

  double flops() const { return static_cast<double>(rows) * static_cast<double>(width); }
  template <class V>
  void operands(V&& v) {
    v.read(tokens);
    v.read(token_table);
    v.read(position_table);
    v.write(out);
  }
};

/// token_gradient[tokens[r],:] += d_out[r,:]; position_gradient[r % context,:] += d_out[r,:], rows
/// in rising order. Without `accumulate` both are zeroed first.
struct EmbeddingBackwardArgs {
  Address tokens, d_out, token_gradient, position_gradient;
  int64_t rows = 0, context = 0, width = 0, vocab = 0;
  bool accumulate = false;

  double flops() const { return 2.0 * static_cast<double>(rows) * static_cast<double>(width); }
  template <class V>
  void operands(V&& v) {
    v.read(tokens);
    v.read(d_out);
    if (accumulate) {
      v.update(token_gradient);
      v.update(position_gradient);
    } else {
      v.write(token_gradient);
      v.write(position_gradient);
    }
  }
};

}  // namespace motley
