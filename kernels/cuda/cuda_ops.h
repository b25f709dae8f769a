#pragma once
// The kernels of a GPU: float, correct before fast. Each device given is a CudaDevice.

#include "kernels/op_table.h"

namespace motley::cuda {

void matmul(Device& device, const MatmulArgs& args);
void bias_gradient(Device& device, const BiasGradientArgs& args);
void embedding_forward(Device& device, const EmbeddingForwardArgs& args);
void embedding_backward(Device& device, const EmbeddingBackwardArgs& args);
void layer_norm_forward(Device& device, const LayerNormForwardArgs& args);
void layer_norm_backward(Device& device, const LayerNormBackwardArgs& args);
void add(Device& device, const AddArgs& args);
void gelu_forward(Device& device, const GeluForwardArgs& args);
void gelu_backward(Device& device, const GeluBackwardArgs& args);
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

extern const OpTable kCudaOps;

}  // namespace motley::cuda
