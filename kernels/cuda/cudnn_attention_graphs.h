#pragma once
// Causal attention as graphs that cuDNN has fused kernels for.

#include <compare>

#include "kernels/cuda/cudnn_graph.h"

namespace motley::cudnn {

/// Some samples and heads of AttentionForwardArgs, in the precision of its activations.
struct AttentionShape {
  int64_t samples = 0, context = 0, heads = 0, head_dim = 0;
  int64_t heads_in_row = 0;  ///< of out, a third of those of qkv; `heads` of them are meant
  DataType type = DataType::kBfloat16;

  auto operator<=>(const AttentionShape&) const = default;
};

/// Names of what execution is given: in device memory, but for the last three.
enum AttentionId : int64_t {
  kQ = 1,
  kK,
  kV,
  kOut,
  kLse,
  kDOut,
  kDQ,
  kDK,
  kDV,
  kWeighted,       ///< backward's scratch, a float32 for each row of scores: d_out·out
  kScale,          ///< of scores
  kMinusInfinity,  ///< in the place of scores of later positions
  kOne,
};

/// Operands lie as in AttentionForwardArgs and AttentionBackwardArgs. With a handle for its device.
Descriptor attention_forward_graph(Descriptors& descriptors, const AttentionShape& shape,
                                   Handle handle);

/// Its engines keep the gradients of all scores in their workspace, and get d_q of them as a plain
/// product: attention_slice(). Other forms, in which d_q is a sum in float32 that tiles of keys add
/// to as they finish, need less memory and time, but their bits depend on who finishes first; no
/// engine of cuDNN 9.19 notes that of itself (kNondeterministic), so the form has to see to it.
Descriptor attention_backward_graph(Descriptors& descriptors, const AttentionShape& shape,
                                    Handle handle);

/// As many samples, or heads of one, as backward can do in so many bytes of workspace: all, or one
/// of several equal parts. Without samples where not even one head fits.
AttentionShape attention_slice(const AttentionShape& shape, int64_t most_workspace);

}  // namespace motley::cudnn
