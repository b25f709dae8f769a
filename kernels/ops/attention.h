#pragma once
#include "core/spec/fleet_spec.h"
#include "kernels/operand.h"

namespace motley {

/// Causal multi-head attention. qkv is [samples·context, 3·heads·head_dim]: each row holds q, then
/// k, then v, each [heads, head_dim]. out is [samples·context, heads·head_dim]. Scores are scaled
/// by 1/sqrt(head_dim). Saves lse[samples, heads, context], the log-sum-exp of each score row;
/// probabilities are not stored (recomputed in backward as in Dao et al. 2022). workspace:
/// attention_workspace_elements() elements in full precision.
struct AttentionForwardArgs {
  Address qkv, out, lse, workspace;
  int64_t samples = 0, context = 0, heads = 0, head_dim = 0;

  int64_t elements() const { return samples * context * heads * head_dim; }
  double flops() const {
    return 4.0 * static_cast<double>(samples * heads * head_dim) * static_cast<double>(context) *
           static_cast<double>(context);
  }
  template <class V>
  void operands(V&& v) {
    v.read(reduced(qkv, 3 * elements()));
    v.write(reduced(out, elements()));
    v.write(full(lse, samples * heads * context));
    v.write(raw(workspace, 0));  // as large as the caller has made it
  }
};

/// d_qkv in the layout of qkv.
struct AttentionBackwardArgs {
  Address qkv, out, lse, d_out, d_qkv, workspace;
  int64_t samples = 0, context = 0, heads = 0, head_dim = 0;

  int64_t elements() const { return samples * context * heads * head_dim; }
  double flops() const {
    return 10.0 * static_cast<double>(samples * heads * head_dim) * static_cast<double>(context) *
           static_cast<double>(context);
  }
  template <class V>
  void operands(V&& v) {
    v.read(reduced(qkv, 3 * elements()));
    v.read(reduced(out, elements()));
    v.read(full(lse, samples * heads * context));
    v.read(reduced(d_out, elements()));
    v.write(reduced(d_qkv, 3 * elements()));
    v.write(raw(workspace, 0));
  }
};

/// Rows of the score matrix that are in memory at a time, for each head in work on a CPU.
inline constexpr int64_t kAttentionBlock = 64;

/// Elements from one row of a block to the next: whole vectors.
inline int64_t attention_stride(int64_t context) { return (context + 7) / 8 * 8; }

/// Scratch for either direction: on each of a CPU's `threads` threads room for a block of scores
/// and one of their gradients, on a GPU two statistics of each row of scores, rows in whole blocks.
/// `shape`: its numbers alone are read.
inline int64_t attention_workspace_elements(const AttentionForwardArgs& shape, DeviceKind kind,
                                            int threads) {
  if (kind == DeviceKind::kCuda) {
    const int64_t blocks = (shape.context + kAttentionBlock - 1) / kAttentionBlock;
    return shape.samples * shape.heads * blocks * kAttentionBlock * 2;
  }
  const int64_t rows = shape.context < kAttentionBlock ? shape.context : kAttentionBlock;
  return threads * 2 * rows * attention_stride(shape.context);
}

}  // namespace motley
