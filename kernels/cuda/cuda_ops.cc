// Compiled by the host compiler, which refuses a table that lacks an operation.
#include "kernels/cuda/cuda_ops.h"

namespace motley::cuda {

const OpTable kCudaOps{
    .matmul = matmul,
    .bias_gradient = bias_gradient,
    .embedding_forward = embedding_forward,
    .embedding_backward = embedding_backward,
    .layer_norm_forward = layer_norm_forward,
    .layer_norm_backward = layer_norm_backward,
    .add = add,
    .gelu_forward = gelu_forward,
    .gelu_backward = gelu_backward,
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

}  // namespace motley::cuda
