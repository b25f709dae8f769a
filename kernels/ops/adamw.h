#pragma once
#include "kernels/operand.h"

namespace motley {

/// One AdamW step with decoupled decay (Loshchilov & Hutter 2019) on `count` elements:
///   g = gradient·gradient_scale;  m = b1·m + (1-b1)·g;  v = b2·v + (1-b2)·g²
///   p -= lr·( (m/(1-b1^t)) / (sqrt(v/(1-b2^t)) + eps) + weight_decay·p )
/// Element-wise, so any slicing gives the same bits.
struct AdamwArgs {
  Address parameter, gradient, m, v;
  int64_t count = 0;
  double lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
  double gradient_scale = 1;                ///< 1/tokens times the clip factor
  double correction1 = 1, correction2 = 1;  ///< 1 - beta^t

  double flops() const { return 14.0 * static_cast<double>(count); }
  template <class V>
  void operands(V&& visitor) {
    visitor.update(full(parameter, count));
    visitor.read(full(gradient, count));
    visitor.update(full(m, count));
    visitor.update(full(v, count));
  }
};

inline constexpr int64_t kSquareSumBlock = 4096;

/// *out (double) = Σ x[i]², summed in double in blocks of kSquareSumBlock, in an order that depends
/// on `count` alone.
struct SquareSumArgs {
  Address x, out;
  int64_t count = 0;

  double flops() const { return 2.0 * static_cast<double>(count); }
  template <class V>
  void operands(V&& v) {
    v.read(full(x, count));
    v.write(raw(out, sizeof(double)));
  }
};

}  // namespace motley
