#pragma once
// bfloat16 and IEEE half precision, as bits: for storing, never for computing. TensorFloat-32: for
// the factors of products.

#include <bit>
#include <cstdint>

namespace motley {

/// The upper half of a float.
struct Bf16 {
  static constexpr float widen(uint16_t bits) {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
  /// To the nearest, ties to even; what is too large becomes infinite, NaN stays NaN.
  static constexpr uint16_t round(float value) {
    constexpr uint32_t kQuiet = 0x00400000;
    const auto bits = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = bits + 0x7fff + ((bits >> 16) & 1);
    return static_cast<uint16_t>((value != value ? bits | kQuiet : rounded) >> 16);
  }
};

/// IEEE 754 binary16.
struct Fp16 {
  static float widen(uint16_t bits) { return static_cast<float>(std::bit_cast<_Float16>(bits)); }
  /// As Bf16::round.
  static uint16_t round(float value) {
    return std::bit_cast<uint16_t>(static_cast<_Float16>(value));
  }
};

/// A float with 10 bits of mantissa.
struct Tf32 {
  /// To the nearest, ties to even, as a float.
  static constexpr float round(float value) {
    const auto bits = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = bits + 0x0fff + ((bits >> 13) & 1);
    return value - value != 0 ? value : std::bit_cast<float>(rounded & ~uint32_t{0x1fff});
  }
};

}  // namespace motley
