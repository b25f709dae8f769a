#pragma once
#include "kernels/address.h"

namespace motley {

/// out[r,:] = token_table[tokens[r] - first_token,:] + position_table[r % context,:]; tokens int32,
/// not negative. The table holds `vocab` rows of the vocabulary from first_token on (Megatron-LM's
/// parallel embedding, Shoeybi et al. 2019): a token that it does not hold contributes zeros, so
/// the sum of `out` over the ranks that share a vocabulary is the embedding.
struct EmbeddingForwardArgs {
  Address tokens, token_table;
  Address position_table = {};  ///< null: no positions are added
  Address out;
  int64_t rows = 0, context = 0, width = 0, vocab = 0;
  int64_t first_token = 0;

  double flops() const { return static_cast<double>(rows) * static_cast<double>(width); }
  template <class V>
  void operands(V&& v) {
    v.read(tokens);
    v.read(token_table);
    v.read(position_table);
    v.write(out);
  }
};

/// token_gradient[tokens[r] - first_token,:] += d_out[r,:] for the tokens held;
/// position_gradient[r % context,:] += d_out[r,:], rows in rising order. Without `accumulate` both
/// are zeroed first.
struct EmbeddingBackwardArgs {
  Address tokens, d_out, token_gradient;
  Address position_gradient = {};  ///< may be null
  int64_t rows = 0, context = 0, width = 0, vocab = 0;
  bool accumulate = false;
  int64_t first_token = 0;

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
