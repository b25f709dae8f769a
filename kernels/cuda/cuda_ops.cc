// Compiled by the host compiler, which refuses a table that lacks an operation.
#include "kernels/cuda/cuda_ops.h"

namespace motley::cuda {

namespace {

template <Precision kPrecision>
constexpr OpTable table() {
  return {
      .matmul = matmul<kPrecision>,
      .bias_gradient = bias_gradient<kPrecision>,
      .embedding_forward = embedding_forward<kPrecision>,
      .embedding_backward = embedding_backward<kPrecision>,
      .layer_norm_forward = layer_norm_forward<kPrecision>,
      .layer_norm_backward = layer_norm_backward<kPrecision>,
      .add = add<kPrecision>,
      .zero = zero,
      .copy = copy,
      .round = round<kPrecision>,
      .scale = scale,
      .dropout = dropout<kPrecision>,
      .attention_forward = attention_forward<kPrecision>,
      .attention_backward = attention_backward<kPrecision>,
      .cross_entropy = cross_entropy<kPrecision>,
      .cross_entropy_part = cross_entropy_part<kPrecision>,
      .cross_entropy_combine = cross_entropy_combine<kPrecision>,
      .accumulate_fixed = accumulate_fixed,
      .from_fixed = from_fixed,
      .adamw = adamw<kPrecision>,
      .square_sum = square_sum,
  };
}

constexpr OpTable fp8_table() {
  OpTable ops = table<stored_precision(Precision::kFp8)>();
  ops.matmul = matmul_in_fp8;
  return ops;
}

constexpr OpTable kFp32Ops = table<Precision::kFp32>();
constexpr OpTable kBf16Ops = table<Precision::kBf16>();
constexpr OpTable kFp16Ops = table<Precision::kFp16>();
constexpr OpTable kFp8Ops = fp8_table();

}  // namespace

const OpTable& ops_in(Precision precision) {
  if (precision == Precision::kBf16) return kBf16Ops;
  if (precision == Precision::kFp8) return kFp8Ops;
  return precision == Precision::kFp16 ? kFp16Ops : kFp32Ops;
}

}  // namespace motley::cuda
