#include "core/philox.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace motley {
namespace {

using Block = std::array<uint32_t, 4>;

// The vectors that the authors publish with Random123.
TEST(Philox, KnownAnswers) {
  constexpr uint32_t ones = 0xFFFFFFFF;
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({ones, ones, ones, ones}, {ones, ones}),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, EveryPartOfAStreamsNameMatters) {
  const uint32_t value = random_u32(7, RandomUse::kInit, 3, 11);
  EXPECT_EQ(value, random_u32(7, RandomUse::kInit, 3, 11));
  EXPECT_NE(value, random_u32(8, RandomUse::kInit, 3, 11));
  EXPECT_NE(value, random_u32(uint64_t{7} << 32, RandomUse::kInit, 3, 11));
  EXPECT_NE(value, random_u32(7, RandomUse::kDropout, 3, 11));
  EXPECT_NE(value, random_u32(7, RandomUse::kInit, 4, 11));
  EXPECT_NE(value, random_u32(7, RandomUse::kInit, 3, 12));
  EXPECT_NE(value, random_u32(7, RandomUse::kInit, 3, 11 + (uint64_t{1} << 40)));
}

TEST(Philox, UniformNumbersFillTheUnitInterval) {
  constexpr int count = 20000;
  double sum = 0;
  for (uint64_t i = 0; i < count; ++i) {
    const float value = random_uniform(1, RandomUse::kSampling, 0, i);
    ASSERT_GE(value, 0.0F);
    ASSERT_LT(value, 1.0F);
    sum += value;
  }
  EXPECT_NEAR(sum / count, 0.5, 5 / std::sqrt(12.0 * count));
}

TEST(Philox, NormalNumbersHaveTheMomentsOfANormal) {
  constexpr int count = 40000;
  double first = 0, second = 0, fourth = 0;
  for (uint64_t i = 0; i < count; ++i) {
    const double value = random_normal(1, RandomUse::kInit, 5, i);
    first += value / count;
    second += value * value / count;
    fourth += value * value * value * value / count;
  }
  // Five standard errors of each.
  EXPECT_NEAR(first, 0, 5 * std::sqrt(1.0 / count));
  EXPECT_NEAR(second, 1, 5 * std::sqrt(2.0 / count));
  EXPECT_NEAR(fourth, 3, 5 * std::sqrt(96.0 / count));
}

TEST(PermutedIndex, IsABijection) {
  for (uint64_t size : {1, 2, 3, 4, 5, 7, 16, 17, 63, 64, 65, 1000, 4097}) {
    std::vector<int> hits(size, 0);
    for (uint64_t i = 0; i < size; ++i) {
      const uint64_t image = permuted_index(42, 3, i, size);
      ASSERT_LT(image, size);
      ++hits[image];
    }
    EXPECT_EQ(hits, std::vector<int>(size, 1)) << "size " << size;
  }
}

TEST(PermutedIndex, HoldsForSizesNobodyCanEnumerate) {
  constexpr uint64_t size = (uint64_t{1} << 61) + 12345;
  EXPECT_LT(permuted_index(1, 0, size - 1, size), size);
  EXPECT_NE(permuted_index(1, 0, 0, size), permuted_index(1, 0, 1, size));
}

TEST(PermutedIndex, DependsOnSeedAndEpochAndLeavesFewFixedPoints) {
  constexpr uint64_t size = 1000;
  int same_epoch = 0, same_seed = 0, fixed = 0;
  for (uint64_t i = 0; i < size; ++i) {
    const uint64_t image = permuted_index(42, 0, i, size);
    same_epoch += image == permuted_index(42, 1, i, size);
    same_seed += image == permuted_index(43, 0, i, size);
    fixed += image == i;
  }
  // Two independent permutations agree in one place on average; ten would be a 1e-7 chance.
  EXPECT_LT(same_epoch, 10);
  EXPECT_LT(same_seed, 10);
  EXPECT_LT(fixed, 10);
}

}  // namespace
}  // namespace motley
