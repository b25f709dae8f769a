#pragma once
// The kernels of the reference device (double, naive loops: the oracle of the contract tests).

#include "kernels/op_table.h"

namespace motley::reference {

void matmul(Device& device, const MatmulArgs& args);
void bias_gradient(Device& device, const BiasGradientArgs& args);
void embedding_forward(Device& device, const EmbeddingForwardArgs& args);
void embedding_backward(Device& device, const EmbeddingBackwardArgs& args);
void layer_norm_forward(Device& device, const LayerNormForwardArgs& args);
void layer_norm_backward(Device& device, const LayerNormBackwardArgs& args);
void add(Device& device, const AddArgs& args);
void zero(Device& device, const ZeroArgs& args);
void copy(Device& device, const CopyArgs& args);
void round(Device& device, const RoundArgs& args);
void scale(Device& device, const ScaleArgs& args);
void dropout(Device& device, const DropoutArgs& args);
void attention_forward(Device& device, const AttentionForwardArgs& args);
void attention_backward(Device& device, const AttentionBackwardArgs& args);
void cross_entropy(Device& device, const CrossEntropyArgs& args);
void cross_entropy_part(Device& device, const CrossEntropyPartArgs& args);
void cross_entropy_combine(Device& device, const CrossEntropyCombineArgs& args);
void accumulate_fixed(Device& device, const AccumulateFixedArgs& args);
void from_fixed(Device& device, const FromFixedArgs& args);
void adamw(Device& device, const AdamwArgs& args);
void square_sum(Device& device, const SquareSumArgs& args);

inline constexpr OpTable kReferenceOps{
    .matmul = matmul,
    .bias_gradient = bias_gradient,
    .embedding_forward = embedding_forward,
    .embedding_backward = embedding_backward,
    .layer_norm_forward = layer_norm_forward,
    .layer_norm_backward = layer_norm_backward,
    .add = add,
    .zero = zero,
    .copy = copy,
    .round = round,
    .scale = scale,
    .dropout = dropout,
    .attention_forward = attention_forward,
    .attention_backward = attention_backward,
    .cross_entropy = cross_entropy,
    .cross_entropy_part = cross_entropy_part,
    .cross_entropy_combine = cross_entropy_combine,
    .accumulate_fixed = accumulate_fixed,
    .from_fixed = from_fixed,
    .adamw = adamw,
    .square_sum = square_sum,
};

}  // namespace motley::reference
