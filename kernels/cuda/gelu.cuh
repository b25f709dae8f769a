#pragma once
// gelu(x) = x·σ(2u) with u = sqrt(2/π)(x + 0.044715x³), for (1 + tanh u)/2 = σ(2u).

#include <cuda_runtime.h>

namespace motley::cuda {

inline constexpr float kTwiceSqrt2OverPi = 1.5957691216f;
inline constexpr float kCubic = 0.044715f;

__device__ inline float sigmoid_of_2u(float x) {
  return 1 / (1 + expf(-kTwiceSqrt2OverPi * (x + kCubic * x * x * x)));
}

__device__ inline float gelu(float x) { return x * sigmoid_of_2u(x); }

__device__ inline float gelu_slope(float x) {
  const float sigmoid = sigmoid_of_2u(x);
  const float slope_of_2u = kTwiceSqrt2OverPi * (1 + 3 * kCubic * x * x);
  return sigmoid + x * sigmoid * (1 - sigmoid) * slope_of_2u;
}

}  // namespace motley::cuda
