#pragma once
#include "kernels/cpu/float_math.h"

namespace motley::cpu {
namespace {

[[maybe_unused]] inline float largest_of(const float* x, int64_t n) {
  return reduce_lanes(
      n, -__builtin_inff(), [&](int64_t i, int64_t lanes) { return load(x + i, lanes); },
      [](Float8 a, Float8 b) { return max(a, b); });
}

/// Log of the sum of exponentials that were taken relative to `largest`.
[[maybe_unused]] inline float log_sum(float largest, float sum) {
  return static_cast<float>(largest + log(sum));
}

/// Σ exp(x[i] - largest).
[[maybe_unused]] inline float sum_of_exp(const float* x, int64_t n, float largest) {
  return sum_lanes(n, [&](int64_t i, int64_t lanes) { return exp(load(x + i, lanes) - largest); });
}

/// log Σ exp(x[i]) over n >= 1 values.
[[maybe_unused]] inline float log_sum_exp(const float* x, int64_t n) {
  const float largest = largest_of(x, n);
  return log_sum(largest, sum_of_exp(x, n, largest));
}

/// out[i] = exp(x[i]) / Σ exp(x); returns log Σ exp(x). n >= 1; out may be x.
[[maybe_unused]] inline float softmax(const float* x, int64_t n, float* out) {
  const float largest = largest_of(x, n);
  const float sum = sum_lanes(n, [&](int64_t i, int64_t lanes) {
    const Float8 e = exp(load(x + i, lanes) - largest);
    store(out + i, e, lanes);
    return e;
  });
  const float scale = 1 / sum;
  for (int64_t i = 0; i < n; ++i) out[i] *= scale;
  return log_sum(largest, sum);
}

}  // namespace
}  // namespace motley::cpu
