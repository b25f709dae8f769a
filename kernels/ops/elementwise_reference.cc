#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "kernels/reference/reference_ops.h"

namespace motley::reference {
namespace {

const double kSqrt2OverPi = std::sqrt(2 / std::acos(-1.0));
constexpr double kCubic = 0.044715;

}  // namespace

void add(Device&, const AddArgs& args) {
  const auto* a = args.a.as<const double>();
  const auto* b = args.b.as<const double>();
  auto* out = args.out.as<double>();
  for (int64_t i = 0; i < args.count; ++i) out[i] = a[i] + b[i];
}

void gelu_forward(Device&, const GeluForwardArgs& args) {
  const auto* x = args.x.as<const double>();
  auto* out = args.out.as<double>();
  for (int64_t i = 0; i < args.count; ++i)
    out[i] = x[i] / 2 * (1 + std::tanh(kSqrt2OverPi * (x[i] + kCubic * std::pow(x[i], 3))));
}

void gelu_backward(Device&, const GeluBackwardArgs& args) {
  const auto* x = args.x.as<const double>();
  const auto* d_out = args.d_out.as<const double>();
  auto* d_x = args.d_x.as<double>();
  for (int64_t i = 0; i < args.count; ++i) {
    const double t = std::tanh(kSqrt2OverPi * (x[i] + kCubic * std::pow(x[i], 3)));
    const double slope = kSqrt2OverPi * (1 + 3 * kCubic * x[i] * x[i]);
    d_x[i] = d_out[i] * ((1 + t) / 2 + x[i] / 2 * (1 - t * t) * slope);
  }
}

void zero(Device&, const ZeroArgs& args) {
  if (args.bytes > 0) std::memset(args.out.as<void>(), 0, static_cast<size_t>(args.bytes));
}

void copy(Device&, const CopyArgs& args) {
  std::copy_n(args.in.as<const std::byte>(), args.bytes, args.out.as<std::byte>());
}

void round(Device&, const RoundArgs& args) {
  std::copy_n(args.in.as<const double>(), args.count, args.out.as<double>());
}

void scale(Device&, const ScaleArgs& args) {
  auto* x = args.x.as<double>();
  for (int64_t i = 0; i < args.count; ++i) {
    x[i] *= args.factor;
    if (!std::isfinite(x[i])) *args.overflow.as<int64_t>() = 1;
  }
}

}  // namespace motley::reference
