#pragma once
// exp and log of the CPU kernels: our own, so that bits do not depend on the C library and whole
// vectors are computed without branches.

#include <bit>

#include "kernels/cpu/vector.h"

namespace motley::cpu {
namespace {

/// e^x within 2 units in the last place for x in [-87.3, 88]; 0 below, e^88 above. NaN stays NaN.
[[maybe_unused]] inline Float8 exp(Float8 unclamped) {
  constexpr float kLowest = -87.3f, kHighest = 88.0f;
  Float8 x = unclamped < kLowest ? broadcast(kLowest) : unclamped;
  x = x > kHighest ? broadcast(kHighest) : x;
  // x = n·ln 2 + r, |r| <= ln 2 / 2. Adding 1.5·2^23 rounds to the nearest integer, which then
  // stands in the low bits; ln 2 in two parts, the first so short that n times it is exact.
  constexpr float kRounding = 12582912.0f;
  const Float8 shifted = x * 1.44269504f + kRounding;
  const Float8 n = shifted - kRounding;
  const Float8 r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  // The Taylor series: r^8/8! < 6e-9.
  Float8 p = broadcast(1.0f / 5040);
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const Int8 exponent = (std::bit_cast<Int8>(shifted) - std::bit_cast<Int8>(broadcast(kRounding)))
                        << 23;
  const Float8 power = std::bit_cast<Float8>(std::bit_cast<Int8>(p) + exponent);
  return unclamped < kLowest ? Float8{} : power;
}

/// The natural logarithm of a positive, finite, normal number, within 1e-11 of its size plus 1e-11;
/// NaN and infinity stay. For one value a row.
[[maybe_unused]] inline double log(double x) {
  if (!(x < __builtin_inf())) return x;
  // x = m·2^e with m in [sqrt(1/2), sqrt(2)); log m = 2·atanh(s), s = (m-1)/(m+1), |s| < 0.172.
  const auto bits = std::bit_cast<uint64_t>(x);
  constexpr uint64_t kSqrtHalf = 0x3fe6a09e667f3bcdu;
  const auto e = static_cast<int64_t>(bits - kSqrtHalf) >> 52;
  const double m = std::bit_cast<double>(bits - (static_cast<uint64_t>(e) << 52));
  const double s = (m - 1) / (m + 1), s2 = s * s;
  double series = 1.0 / 13;
  series = series * s2 + 1.0 / 11;
  series = series * s2 + 1.0 / 9;
  series = series * s2 + 1.0 / 7;
  series = series * s2 + 1.0 / 5;
  series = series * s2 + 1.0 / 3;
  series = series * s2 + 1.0;
  return static_cast<double>(e) * 0.69314718055994530942 + 2 * s * series;
}

}  // namespace
}  // namespace motley::cpu
