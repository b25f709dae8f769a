// exp and log of the CPU kernels against the C library's in double.
#include "kernels/cpu/float_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace motley::cpu {
namespace {

float exp_of(float x) { return exp(broadcast(x))[0]; }

TEST(FloatMath, ExpIsWithinTwoUnitsInTheLastPlace) {
  double worst = 0;
  for (float x = -87.29f; x < 87.99f; x += 0.00037f) {
    const double exact = std::exp(static_cast<double>(x));
    const auto nearest = static_cast<float>(exact);
    const double unit = static_cast<double>(std::nextafter(nearest, INFINITY)) - nearest;
    worst = std::max(worst, std::abs(exp_of(x) - exact) / unit);
  }
  EXPECT_LT(worst, 2);
}

TEST(FloatMath, ExpAtTheEdges) {
  EXPECT_EQ(exp_of(0), 1);
  EXPECT_EQ(exp_of(-88), 0);
  EXPECT_EQ(exp_of(-INFINITY), 0);
  EXPECT_EQ(exp_of(100), exp_of(88));
  EXPECT_TRUE(std::isfinite(exp_of(INFINITY)));
  EXPECT_TRUE(std::isnan(exp_of(std::numeric_limits<float>::quiet_NaN())));
}

TEST(FloatMath, LogIsGoodForARoundedFloat) {
  for (double x = 1e-30; x < 1e30; x *= 1.0137)
    EXPECT_NEAR(log(x), std::log(x), 1e-11 * (1 + std::abs(std::log(x)))) << x;
  EXPECT_EQ(log(1.0), 0);
  EXPECT_EQ(log(INFINITY), INFINITY);
  EXPECT_TRUE(std::isnan(log(NAN)));
}

TEST(Lanes, TailsGiveTheSameBitsAsWholeVectors) {
  float x[64], whole[64], tail[64];
  for (int i = 0; i < 64; ++i) x[i] = static_cast<float>(i) * 0.37f - 11;
  const auto exp_all = [&](int64_t n, float* out) {
    for_lanes(n, [&](int64_t i, int64_t lanes) { store(out + i, exp(load(x + i, lanes)), lanes); });
  };
  exp_all(64, whole);
  for (int64_t n = 1; n < 64; ++n) {
    std::fill(tail, tail + 64, -1.0f);
    exp_all(n, tail);
    for (int64_t i = 0; i < 64; ++i) ASSERT_EQ(tail[i], i < n ? whole[i] : -1.0f) << n << " " << i;
  }
}

TEST(Lanes, SumsEveryLengthAndIgnoresWhatLiesBehind) {
  float x[200];
  for (int64_t n = 0; n < 150; ++n) {
    std::fill(x, x + 200, std::numeric_limits<float>::quiet_NaN());
    std::fill(x, x + n, 1.0f);
    const auto from = [&](int64_t i, int64_t lanes) { return load(x + i, lanes); };
    ASSERT_EQ(sum_lanes(n, from), static_cast<float>(n));
  }
}

}  // namespace
}  // namespace motley::cpu
