#include <algorithm>
#include <cmath>

#include "kernels/reference/reference_ops.h"

namespace motley::reference {

namespace {

void update(const AdamwArgs& args, const ParameterRun& run) {
  const auto* gradient = args.gradient.as<const double>() + run.parameter;
  auto* parameter = args.parameter.as<double>() + run.parameter;
  auto* m = args.m.as<double>() + run.state;
  auto* v = args.v.as<double>() + run.state;
  for (int64_t i = 0; i < run.count; ++i) {
    const double g = gradient[i] * args.gradient_scale;
    m[i] = args.beta1 * m[i] + (1 - args.beta1) * g;
    v[i] = args.beta2 * v[i] + (1 - args.beta2) * g * g;
    const double direction =
        (m[i] / args.correction1) / (std::sqrt(v[i] / args.correction2) + args.eps);
    parameter[i] -= args.lr * (direction + run.weight_decay * parameter[i]);
    if (!args.rounded.null()) args.rounded.as<double>()[run.parameter + i] = parameter[i];
  }
}

double square_sum_of(const double* x, int64_t count) {
  double sum = 0;
  for (int64_t begin = 0; begin < count; begin += kSquareSumBlock) {
    double block = 0;
    for (int64_t i = begin; i < std::min(count, begin + kSquareSumBlock); ++i) block += x[i] * x[i];
    sum += block;
  }
  return sum;
}

}  // namespace

void adamw(Device&, const AdamwArgs& args) {
  if (args.runs.null())
    return update(args, {.count = args.count, .weight_decay = args.weight_decay});
  for (int64_t r = 0; r < args.run_count; ++r) update(args, args.runs.as<const ParameterRun>()[r]);
}

void square_sum(Device&, const SquareSumArgs& args) {
  const auto* x = args.x.as<const double>();
  auto* out = args.out.as<double>();
  if (args.runs.null()) *out = square_sum_of(x, args.count);
  for (int64_t r = 0; r < args.run_count; ++r) {
    const auto& run = args.runs.as<const ParameterRun>()[r];
    out[r] = square_sum_of(x + run.parameter, run.count);
  }
}

}  // namespace motley::reference
