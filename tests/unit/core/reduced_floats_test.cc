#include "core/reduced_floats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace motley {
namespace {

constexpr uint32_t kAll = 1 << 16;

/// What the bits stand for, by the formats' definitions.
double value_of(uint16_t bits, int exponent_bits, int bias) {
  const int fraction_bits = 15 - exponent_bits;
  const int exponent = (bits >> fraction_bits) & ((1 << exponent_bits) - 1);
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1)
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  const double leading = exponent == 0 ? 0 : 1;
  return sign *
         std::ldexp(leading + std::ldexp(fraction, -fraction_bits), std::max(exponent, 1) - bias);
}

template <class Format>
void expect_all_values(int exponent_bits, int bias) {
  for (uint32_t i = 0; i < kAll; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    const double value = value_of(bits, exponent_bits, bias);
    const float wide = Format::widen(bits);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(wide));
      EXPECT_TRUE(std::isnan(Format::widen(Format::round(wide))));
      continue;
    }
    ASSERT_EQ(wide, value) << bits;
    ASSERT_EQ(Format::round(wide), bits);
  }
}

TEST(ReducedFloats, StandForWhatTheirFormatsSay) {
  expect_all_values<Bf16>(8, 127);
  expect_all_values<Fp16>(5, 15);
}

/// Between neighbours the nearer is taken, of two as near the one whose last bit is 0.
template <class Format>
void expect_nearest(uint32_t largest) {
  for (uint32_t bits = 0; bits < largest; ++bits) {
    const float low = Format::widen(static_cast<uint16_t>(bits));
    const float high = Format::widen(static_cast<uint16_t>(bits + 1));
    const float middle = low + (high - low) / 2;
    const uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    for (const float sign : {1.0F, -1.0F}) {
      const uint32_t with_sign = sign < 0 ? 0x8000 : 0;
      ASSERT_EQ(Format::round(sign * middle), even | with_sign);
      ASSERT_EQ(Format::round(sign * std::nextafter(middle, 0.0F)), bits | with_sign);
      ASSERT_EQ(Format::round(sign * std::nextafter(middle, high)), (bits + 1) | with_sign);
    }
  }
}

TEST(ReducedFloats, RoundToTheNearestTiesToEven) {
  expect_nearest<Bf16>(0x7f7f);
  expect_nearest<Fp16>(0x7bff);
}

TEST(ReducedFloats, Tf32HasTenBitsOfMantissa) {
  constexpr float kStep = 0x1p-10F;
  for (int steps = 0; steps < 1024; ++steps) {
    const float low = 1 + static_cast<float>(steps) * kStep, high = low + kStep;
    const float middle = low + kStep / 2;
    for (const float sign : {1.0F, -1.0F}) {
      ASSERT_EQ(Tf32::round(sign * low), sign * low);
      ASSERT_EQ(Tf32::round(sign * middle), sign * (steps % 2 == 0 ? low : high));
      ASSERT_EQ(Tf32::round(sign * std::nextafter(middle, 0.0F)), sign * low);
      ASSERT_EQ(Tf32::round(sign * std::nextafter(middle, 4.0F)), sign * high);
    }
  }
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(Tf32::round(std::numeric_limits<float>::max()), kInfinity);
  EXPECT_EQ(Tf32::round(-kInfinity), -kInfinity);
  EXPECT_TRUE(std::isnan(Tf32::round(std::numeric_limits<float>::quiet_NaN())));
}

/// Every code of an 8-bit format and what it stands for, by the tables of Micikevicius et al.
/// (2022): E5M2 has the special values of IEEE 754, E4M3 a NaN alone, where all other bits are 1.
std::vector<double> values_of_8_bits(int mantissa, int bias) {
  std::vector<double> values;
  for (int code = 0; code < 256; ++code) {
    const int exponent = (code & 0x7f) >> mantissa, fraction = code & ((1 << mantissa) - 1);
    const double leading = exponent == 0 ? 0 : 1;
    double value =
        std::ldexp(leading + std::ldexp(fraction, -mantissa), std::max(exponent, 1) - bias);
    if (mantissa == 2 && exponent == 31)
      value = fraction == 0 ? std::numeric_limits<double>::infinity() : std::nan("");
    if (mantissa == 3 && (code & 0x7f) == 0x7f) value = std::nan("");
    values.push_back(code < 128 ? value : -value);
  }
  return values;
}

/// By looking at every number: the nearest, of two the even one, of those too large the largest.
int nearest_of_8_bits(const std::vector<double>& values, double most, double x) {
  const double size = std::min(std::abs(x), most);
  int nearest = 0;
  for (int code = 1; code < 128; ++code) {
    const double value = values[static_cast<size_t>(code)];
    if (!std::isfinite(value)) continue;
    const double best = std::abs(values[static_cast<size_t>(nearest)] - size);
    const double distance = std::abs(value - size);
    if (distance < best || (distance == best && code % 2 == 0)) nearest = code;
  }
  return std::signbit(x) ? nearest | 0x80 : nearest;
}

template <class Format>
void expect_8_bits(int mantissa, int bias, double most) {
  const std::vector<double> values = values_of_8_bits(mantissa, bias);
  for (int code = 0; code < 256; ++code) {
    const double value = values[static_cast<size_t>(code)];
    const float wide = Format::widen(static_cast<uint8_t>(code));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(wide)) << code;
      continue;
    }
    ASSERT_EQ(wide, value) << code;
    ASSERT_EQ(std::signbit(wide), code >= 128) << code;
    if (std::isinf(value)) continue;  // rounding saturates
    ASSERT_EQ(Format::round(wide), code);
  }
  // Every bfloat16, ties of either format among them, and what lies beside it.
  for (uint32_t upper = 0; upper < kAll; ++upper) {
    const float value = Bf16::widen(static_cast<uint16_t>(upper));
    if (!std::isfinite(value)) continue;
    for (const float x : {value, std::nextafter(value, 0.0F), std::nextafter(value, 1e38F)})
      ASSERT_EQ(Format::round(x), nearest_of_8_bits(values, most, x)) << x;
  }
  EXPECT_EQ(Format::widen(Format::round(1e30F)), most);
  EXPECT_EQ(Format::widen(Format::round(-std::numeric_limits<float>::infinity())), -most);
  EXPECT_TRUE(std::isnan(Format::widen(Format::round(std::nanf("")))));
}

TEST(ReducedFloats, EightBitsAreAsTheirTablesSay) {
  expect_8_bits<E4m3>(3, 7, 448);
  expect_8_bits<E5m2>(2, 15, 57344);
}

/// The scale brings the largest number into range, half of it would not.
template <class Format>
void expect_scales(float most) {
  for (uint32_t bits = 0; bits < 0x7f80; ++bits) {
    const float largest = Bf16::widen(static_cast<uint16_t>(bits));
    const auto scale = Format::scale_of(largest);
    ASSERT_EQ(scale.up * scale.down, 1) << largest;
    ASSERT_LE(largest * scale.down, most) << largest;
    int exponent = 0;
    ASSERT_EQ(std::frexp(scale.up, &exponent), 0.5F) << "no power of two";
    ASSERT_TRUE(largest * scale.down * 2 > most || scale.up == 0x1p-126F) << largest;
  }
  for (const float none : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    EXPECT_TRUE(std::isnan(Format::scale_of(none).up));
    EXPECT_TRUE(std::isnan(Format::scale_of(none).down));
  }
}

TEST(ReducedFloats, ScalesOfEightBitsArePowersOfTwoThatFit) {
  expect_scales<E4m3>(448);
  expect_scales<E5m2>(57344);
  EXPECT_EQ(E4m3::scale_of(449).up, 2);
  EXPECT_EQ(E4m3::scale_of(448).up, 1);
}

TEST(ReducedFloats, WhatIsTooLargeBecomesInfinite) {
  EXPECT_EQ(Fp16::widen(Fp16::round(65519.0F)), 65504.0F);
  EXPECT_EQ(Fp16::widen(Fp16::round(65520.0F)), std::numeric_limits<float>::infinity());
  EXPECT_EQ(Fp16::widen(Fp16::round(-1e30F)), -std::numeric_limits<float>::infinity());
  EXPECT_EQ(Bf16::widen(Bf16::round(std::numeric_limits<float>::max())),
            std::numeric_limits<float>::infinity());
  EXPECT_EQ(Bf16::widen(Bf16::round(-std::numeric_limits<float>::infinity())),
            -std::numeric_limits<float>::infinity());
}

}  // namespace
}  // namespace motley
