#include <algorithm>
#include <cmath>

#include "kernels/reference/reference_ops.h"

namespace motley::reference {

void adamw(Device&, const AdamwArgs& args) {
  const auto* gradient = args.gradient.as<const double>();
  auto* parameter = args.parameter.as<double>();
  auto* m = args.m.as<double>();
  auto* v = args.v.as<double>();
  for (int64_t i = 0; i < args.count; ++i) {
    const double g = gradient[i] * args.gradient_scale;
    m[i] = args.beta1 * m[i] + (1 - args.beta1) * g;
    v[i] = args.beta2 * v[i] + (1 - args.beta2) * g * g;
    const double direction =
        (m[i] / args.correction1) / (std::sqrt(v[i] / args.correction2) + args.eps);
    parameter[i] -= args.lr * (direction + args.weight_decay * parameter[i]);
  }
}

void square_sum(Device&, const SquareSumArgs& args) {
  const auto* x = args.x.as<const double>();
  double sum = 0;
  for (int64_t begin = 0; begin < args.count; begin += kSquareSumBlock) {
    double block = 0;
    for (int64_t i = begin; i < std::min(args.count, begin + kSquareSumBlock); ++i)
      block += x[i] * x[i];
    sum += block;
  }
  *args.out.as<double>() = sum;
}

}  // namespace motley::reference
