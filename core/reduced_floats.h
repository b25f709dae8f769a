#pragma once
// bfloat16 and IEEE half precision, as bits: for storing, never for computing. TensorFloat-32 and
// two floats of 8 bits: for the factors of products.

#include <algorithm>
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

/// A float of 8 bits (Micikevicius et al. 2022): sign, exponent, kMantissa bits; kMost is the
/// largest number. Numbers are scaled to use what little range it has.
template <int kMantissa, uint8_t kMost>
struct EightBits {
  /// Powers of two, so that they round nothing. Of a tensor with an infinity or NaN both are NaN,
  /// and so is every product with it.
  struct Scale {
    float down;  ///< number -> what is rounded
    float up;    ///< and back
  };

  /// The smallest `up` with which `largest`, the largest magnitude of a tensor, is in range.
  static constexpr Scale scale_of(float largest) {
    constexpr uint32_t kMostFraction = 0x600000;  // of both formats: 1.75 times a power of two
    constexpr int kMostExponent = (kMost >> kMantissa) - kBias;
    if (largest - largest != 0) return {largest - largest, largest - largest};
    const uint32_t above = std::bit_cast<uint32_t>(largest) + (0x7fffff - kMostFraction);
    const int exponent = std::max(static_cast<int>(above >> 23) - kMostExponent, 1);
    return {power(254 - exponent), power(exponent)};
  }

  /// To the nearest, ties to even; what is too large becomes the largest, NaN stays NaN.
  static constexpr uint8_t round(float value) {
    // What is below 2^(1 - kBias) is a multiple of the smallest number: adding this leaves the last
    // bits of a float for the multiple.
    constexpr float kSmallest = power(1 - kBias + 127);
    constexpr float kMultiples = power(1 - kBias - kMantissa + 23 + 127);
    constexpr int kDropped = 23 - kMantissa;
    const auto bits = std::bit_cast<uint32_t>(value);
    const auto sign = static_cast<uint8_t>(bits >> 24 & 0x80);
    const auto magnitude = std::bit_cast<float>(bits & 0x7fffffff);
    if (value != value) return 0x7f;
    if (magnitude < kSmallest)
      return static_cast<uint8_t>(sign | (std::bit_cast<uint32_t>(magnitude + kMultiples) -
                                          std::bit_cast<uint32_t>(kMultiples)));
    const uint32_t rounded =
        ((bits & 0x7fffffff) + (1U << (kDropped - 1)) - 1 + (bits >> kDropped & 1)) >> kDropped;
    return static_cast<uint8_t>(sign |
                                std::min(rounded - ((127U - kBias) << kMantissa), uint32_t{kMost}));
  }

  static constexpr float widen(uint8_t bits) {
    constexpr uint32_t kInfinity = 0x7f800000;
    const uint32_t sign = static_cast<uint32_t>(bits & 0x80) << 24;
    const uint32_t magnitude = static_cast<uint32_t>(bits & 0x7f) << (23 - kMantissa);
    // E5M2 has the infinities and NaNs of IEEE 754, E4M3 one NaN.
    if ((bits & 0x7f) > kMost) return std::bit_cast<float>(sign | kInfinity | magnitude);
    return std::bit_cast<float>(sign | magnitude) * power(254 - kBias);
  }

 private:
  static constexpr int kBias = (1 << (6 - kMantissa)) - 1;
  /// 2^(exponent - 127)
  static constexpr float power(int exponent) {
    return std::bit_cast<float>(static_cast<uint32_t>(exponent) << 23);
  }
};

using E4m3 = EightBits<3, 0x7e>;  ///< to 448: of activations and weights
using E5m2 = EightBits<2, 0x7b>;  ///< to 57344: of gradients

}  // namespace motley
