#pragma once
// gelu(x) = x·σ(2u) with u = sqrt(2/π)(x + 0.044715x³) and σ(y) = 1/(1 + e^-y), for
// (1 + tanh u)/2 = σ(2u).

#include "kernels/cpu/float_math.h"

namespace motley::cpu {
namespace {

constexpr float kTwiceSqrt2OverPi = 1.5957691216f;
constexpr float kCubic = 0.044715f;

[[maybe_unused]] inline Float8 exp_of_minus_2u(Float8 x) {
  return exp(-kTwiceSqrt2OverPi * (x + kCubic * x * x * x));
}

[[maybe_unused]] inline Float8 gelu(Float8 x) { return x / (1.0f + exp_of_minus_2u(x)); }

[[maybe_unused]] inline Float8 gelu_slope(Float8 x) {
  const Float8 e = exp_of_minus_2u(x);
  const Float8 sigmoid = 1.0f / (1.0f + e);
  const Float8 slope_of_2u = kTwiceSqrt2OverPi * (1.0f + 3 * kCubic * x * x);
  return sigmoid + x * sigmoid * (e * sigmoid) * slope_of_2u;
}

}  // namespace
}  // namespace motley::cpu
