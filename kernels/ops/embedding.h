#pragma once
#include "core/spec/fleet_spec.h"
#include "kernels/operand.h"
#include "kernels/ops/embedding_workspace.h"

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
    v.read(raw(tokens, rows * 4));
    v.read(reduced(token_table, vocab * width));
    v.read(reduced(position_table, context * width));
    v.write(reduced(out, rows * width));
  }
};

/// token_gradient[tokens[r] - first_token,:] += d_out[r,:] for the tokens held;
/// position_gradient[r % context,:] += d_out[r,:], rows in rising order. Without `accumulate` both
/// are zeroed first. workspace: embedding_workspace_elements() elements in full precision. A GPU
/// adds the rows of a token in an order that depends on the tokens alone.
struct EmbeddingBackwardArgs {
  Address tokens, d_out, token_gradient;
  Address position_gradient = {};  ///< may be null
  int64_t rows = 0, context = 0, width = 0, vocab = 0;
  bool accumulate = false;
  int64_t first_token = 0;
  Address workspace = {};

  double flops() const { return 2.0 * static_cast<double>(rows) * static_cast<double>(width); }
  template <class V>
  void operands(V&& v) {
    v.read(raw(tokens, rows * 4));
    v.read(reduced(d_out, rows * width));
    if (accumulate) {
      v.update(full(token_gradient, vocab * width));
      v.update(full(position_gradient, context * width));
    } else {
      v.write(full(token_gradient, vocab * width));
      v.write(full(position_gradient, context * width));
    }
    v.write(raw(workspace, 0));  // as large as the caller has made it
  }
};

/// Scratch of the backward pass; none on a CPU, where `workspace` may be null.
inline int64_t embedding_workspace_elements(DeviceKind device, int64_t rows, int64_t width,
                                            int64_t vocab) {
  if (device != DeviceKind::kCuda) return 0;
  return EmbeddingWorkspace(rows, width, vocab).words;
}

}  // namespace motley
