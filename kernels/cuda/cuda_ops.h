#pragma once
// The kernels of a GPU, correct before fast. Each device given is a CudaDevice; those that meet
// reduced operands are there for fp32, bf16 and fp16 (MOTLEY_IN_EACH_PRECISION).

#include "core/precision.h"
#include "kernels/op_table.h"

namespace motley::cuda {

template <Precision kPrecision>
void matmul(Device& device, const MatmulArgs& args);
/// Stored operands are in bf16.
void matmul_in_fp8(Device& device, const MatmulArgs& args);
template <Precision kPrecision>
void bias_gradient(Device& device, const BiasGradientArgs& args);
template <Precision kPrecision>
void embedding_forward(Device& device, const EmbeddingForwardArgs& args);
template <Precision kPrecision>
void embedding_backward(Device& device, const EmbeddingBackwardArgs& args);
template <Precision kPrecision>
void layer_norm_forward(Device& device, const LayerNormForwardArgs& args);
template <Precision kPrecision>
void layer_norm_backward(Device& device, const LayerNormBackwardArgs& args);
template <Precision kPrecision>
void add(Device& device, const AddArgs& args);
void zero(Device& device, const ZeroArgs& args);
void copy(Device& device, const CopyArgs& args);
template <Precision kPrecision>
void round(Device& device, const RoundArgs& args);
void scale(Device& device, const ScaleArgs& args);
template <Precision kPrecision>
void dropout(Device& device, const DropoutArgs& args);
template <Precision kPrecision>
void attention_forward(Device& device, const AttentionForwardArgs& args);
template <Precision kPrecision>
void attention_backward(Device& device, const AttentionBackwardArgs& args);
template <Precision kPrecision>
void cross_entropy(Device& device, const CrossEntropyArgs& args);
template <Precision kPrecision>
void cross_entropy_part(Device& device, const CrossEntropyPartArgs& args);
template <Precision kPrecision>
void cross_entropy_combine(Device& device, const CrossEntropyCombineArgs& args);
void accumulate_fixed(Device& device, const AccumulateFixedArgs& args);
void from_fixed(Device& device, const FromFixedArgs& args);
template <Precision kPrecision>
void adamw(Device& device, const AdamwArgs& args);
void square_sum(Device& device, const SquareSumArgs& args);

/// In what a CudaDevice computes in.
const OpTable& ops_in(Precision precision);

}  // namespace motley::cuda
