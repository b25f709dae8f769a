#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace motley {

/// Of a float without its sign, the bits: they rise with the value, an infinity is above all
/// numbers and NaN above that.
inline int32_t magnitude_bits(float value) { return std::bit_cast<int32_t>(value) & 0x7fffffff; }
inline constexpr int32_t kInfinityBits = 0x7f800000;

/// 0 of none.
inline int32_t largest_magnitude_bits(const float* values, int64_t count) {
  int32_t most = 0;
  for (int64_t i = 0; i < count; ++i) most = std::max(most, magnitude_bits(values[i]));
  return most;
}

}  // namespace motley
