#include "kernels/cpu/reduced_ops.h"

#include <atomic>

#include "core/reduced_floats.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/widening.h"

namespace motley::cpu {
namespace {

template <class Format>
void widen(Device& device, const Widening::Entry& operand) {
  const auto* from = operand.stored.as<const uint16_t>();
  auto* to = reinterpret_cast<float*>(operand.wide);
  parallel_ranges(device, operand.count, kTaskElements, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = Format::widen(from[i]);
  });
}

template <class Format>
void round_back(Device& device, const Widening::Entry& operand) {
  const auto* from = reinterpret_cast<const float*>(operand.wide);
  auto* to = operand.stored.as<uint16_t>();
  parallel_ranges(device, operand.count, kTaskElements, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = Format::round(from[i]);
  });
}

template <class Format, class Args, Kernel<Args> kernel>
void rounded(Device& device, const Args& args) {
  Args in_float = args;
  Widening counted(nullptr);
  in_float.operands(counted);
  Widening widening(static_cast<CpuDevice&>(device).scratch(Bytes(counted.bytes())));
  in_float.operands(widening);
  for (const Widening::Entry& operand : widening.entries())
    if (operand.read) widen<Format>(device, operand);
  kernel(device, in_float);
  for (const Widening::Entry& operand : widening.entries())
    if (operand.written) round_back<Format>(device, operand);
}

/// What is normalised is the sum as it is stored, so that is rounded first.
template <class Format>
void rounded_layer_norm_forward(Device& device, const LayerNormForwardArgs& args) {
  LayerNormForwardArgs of_sum = args;
  if (!args.residual.null()) {
    rounded<Format, AddArgs, add>(device,
                                  {args.x, args.residual, args.sum, args.rows * args.width});
    of_sum.x = args.sum;
    of_sum.residual = of_sum.sum = {};
  }
  rounded<Format, LayerNormForwardArgs, layer_norm_forward>(device, of_sum);
}

template <class Format>
constexpr OpTable rounded_ops() {
  return {
      .matmul = rounded<Format, MatmulArgs, matmul>,
      .bias_gradient = rounded<Format, BiasGradientArgs, bias_gradient>,
      .embedding_forward = rounded<Format, EmbeddingForwardArgs, embedding_forward>,
      .embedding_backward = rounded<Format, EmbeddingBackwardArgs, embedding_backward>,
      .layer_norm_forward = rounded_layer_norm_forward<Format>,
      .layer_norm_backward = rounded<Format, LayerNormBackwardArgs, layer_norm_backward>,
      .add = rounded<Format, AddArgs, add>,
      .zero = zero,
      .copy = copy,
      .round = rounded<Format, RoundArgs, round>,
      .scale = scale,
      .dropout = rounded<Format, DropoutArgs, dropout>,
      .attention_forward = rounded<Format, AttentionForwardArgs, attention_forward>,
      .attention_backward = rounded<Format, AttentionBackwardArgs, attention_backward>,
      .cross_entropy = rounded<Format, CrossEntropyArgs, cross_entropy>,
      .cross_entropy_part = rounded<Format, CrossEntropyPartArgs, cross_entropy_part>,
      .cross_entropy_combine = rounded<Format, CrossEntropyCombineArgs, cross_entropy_combine>,
      .accumulate_fixed = accumulate_fixed,
      .from_fixed = from_fixed,
      .adamw = rounded<Format, AdamwArgs, adamw>,
      .square_sum = square_sum,
  };
}

/// Elements of a factor, a row of them `stride` from the next.
struct FactorRows {
  float* first;
  int64_t rows, columns, stride;

  template <class Body>
  void for_each(Device& device, const Body& body) const {
    parallel_rows(device, rows, columns, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) body(first + row * stride);
    });
  }
};

/// As its bits, by which an infinity is larger than all numbers and NaN larger still.
uint32_t largest_magnitude(Device& device, const FactorRows& factor) {
  std::atomic<uint32_t> largest{0};
  factor.for_each(device, [&](const float* row) {
    uint32_t most = 0;
    for (int64_t i = 0; i < factor.columns; ++i)
      most = std::max(most, std::bit_cast<uint32_t>(row[i]) & 0x7fffffff);
    uint32_t known = largest;
    while (known < most && !largest.compare_exchange_weak(known, most)) {
    }
  });
  return largest;
}

/// In place; it stays in float.
template <class Format>
void round_to_8_bits(Device& device, const FactorRows& factor) {
  const auto scale = Format::scale_of(std::bit_cast<float>(largest_magnitude(device, factor)));
  factor.for_each(device, [&](float* row) {
    for (int64_t i = 0; i < factor.columns; ++i)
      row[i] = Format::widen(Format::round(row[i] * scale.down)) * scale.up;
  });
}

/// Of operands that have been widened, so that the factors are copies.
void matmul_in_fp8(Device& device, const MatmulArgs& args) {
  if (args.in_8_bits()) {
    const FactorRows a{args.a.as<float>(), args.transpose_a ? args.k : args.m,
                       args.transpose_a ? args.m : args.k, args.lda()};
    if (args.gradient_a)
      round_to_8_bits<E5m2>(device, a);
    else
      round_to_8_bits<E4m3>(device, a);
    round_to_8_bits<E4m3>(
        device, {args.b.as<float>(), args.transpose_b ? args.n : args.k, args.ldb(), args.ldb()});
  }
  matmul(device, args);
}

constexpr OpTable fp8_ops() {
  OpTable ops = rounded_ops<Bf16>();
  ops.matmul = rounded<Bf16, MatmulArgs, matmul_in_fp8>;
  return ops;
}

/// On copies of the factors.
void matmul_in_tf32(Device& device, const MatmulArgs& args) {
  const FactorCopies copies(args);
  auto* scratch = reinterpret_cast<float*>(static_cast<CpuDevice&>(device).scratch(copies.bytes()));
  MatmulArgs in_tf32 = args;
  const auto copy = [&](Address& factor, int64_t count, float* to) {
    const auto* from = factor.as<const float>();
    parallel_ranges(device, count, kTaskElements, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) to[i] = Tf32::round(from[i]);
    });
    factor = Address::of(to);
  };
  copy(in_tf32.a, copies.a, scratch);
  copy(in_tf32.b, copies.b, scratch + copies.b_begin());
  matmul(device, in_tf32);
}

constexpr OpTable tf32_ops() {
  OpTable ops = kCpuOps;
  ops.matmul = matmul_in_tf32;
  return ops;
}

constexpr OpTable kBf16Ops = rounded_ops<Bf16>();
constexpr OpTable kFp16Ops = rounded_ops<Fp16>();
constexpr OpTable kTf32Ops = tf32_ops();
constexpr OpTable kFp8Ops = fp8_ops();

}  // namespace

const OpTable& rounding_ops(Precision precision) {
  if (precision == Precision::kTf32) return kTf32Ops;
  if (precision == Precision::kFp8) return kFp8Ops;
  MOTLEY_CHECK(is_reduced(precision), "a table of no precision that rounds");
  return precision == Precision::kBf16 ? kBf16Ops : kFp16Ops;
}

}  // namespace motley::cpu
