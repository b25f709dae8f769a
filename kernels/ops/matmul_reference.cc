#include <cmath>

#include "kernels/reference/reference_ops.h"

namespace motley::reference {
namespace {

const double kSqrt2OverPi = std::sqrt(2 / std::acos(-1.0));
constexpr double kCubic = 0.044715;

double gelu(double x) {
  return x / 2 * (1 + std::tanh(kSqrt2OverPi * (x + kCubic * std::pow(x, 3))));
}

double gelu_slope(double x) {
  const double t = std::tanh(kSqrt2OverPi * (x + kCubic * std::pow(x, 3)));
  const double slope = kSqrt2OverPi * (1 + 3 * kCubic * x * x);
  return (1 + t) / 2 + x / 2 * (1 - t * t) * slope;
}

/// Element (i, j) of op(A)·op(B).
double product_at(const MatmulArgs& args, int64_t i, int64_t j) {
  const auto* a = args.a.as<const double>();
  const auto* b = args.b.as<const double>();
  double sum = 0;
  for (int64_t l = 0; l < args.k; ++l) {
    const double left = args.transpose_a ? a[l * args.lda() + i] : a[i * args.lda() + l];
    const double right = args.transpose_b ? b[j * args.ldb() + l] : b[l * args.ldb() + j];
    sum += left * right;
  }
  return sum;
}

}  // namespace

void matmul(Device&, const MatmulArgs& args) {
  const auto* bias = args.bias.as<const double>();
  auto* pre_activation = args.pre_activation.as<double>();  // [m, n]
  for (int64_t i = 0; i < args.m; ++i) {
    for (int64_t j = 0; j < args.n; ++j) {
      double& c = args.c.as<double>()[i * args.ldc() + j];
      double sum = product_at(args, i, j);
      if (bias != nullptr) sum += bias[j];
      if (args.accumulate) sum += c;
      if (args.epilogue == Epilogue::kGelu) {
        pre_activation[i * args.n + j] = sum;
        sum = gelu(sum);
      } else if (args.epilogue == Epilogue::kGeluGradient) {
        sum *= gelu_slope(pre_activation[i * args.n + j]);
      }
      c = sum;
    }
  }
}

}  // namespace motley::reference
