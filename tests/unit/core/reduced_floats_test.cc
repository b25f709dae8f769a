#include "core/reduced_floats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

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
