#include "worker/optimizer/schedule.h"

#include <gtest/gtest.h>

#include <limits>

namespace motley {
namespace {

const OptimizerSpec kOptimizer{.lr = 1e-3};

TEST(LearningRate, CosineAfterWarmUp) {
  const ScheduleSpec schedule{.type = "cosine", .warmup = 10, .min_lr = 1e-4};
  EXPECT_DOUBLE_EQ(learning_rate(kOptimizer, schedule, 1, 110), 1e-4);
  EXPECT_DOUBLE_EQ(learning_rate(kOptimizer, schedule, 5, 110), 5e-4);
  EXPECT_DOUBLE_EQ(learning_rate(kOptimizer, schedule, 10, 110), 1e-3);
  EXPECT_DOUBLE_EQ(learning_rate(kOptimizer, schedule, 60, 110), 5.5e-4);
  EXPECT_DOUBLE_EQ(learning_rate(kOptimizer, schedule, 110, 110), 1e-4);
  EXPECT_DOUBLE_EQ(learning_rate(kOptimizer, schedule, 500, 110), 1e-4);
}

TEST(LearningRate, ConstantAfterWarmUp) {
  const ScheduleSpec schedule{.type = "constant", .warmup = 4};
  EXPECT_DOUBLE_EQ(learning_rate(kOptimizer, schedule, 2, 100), 5e-4);
  EXPECT_DOUBLE_EQ(learning_rate(kOptimizer, schedule, 5, 100), 1e-3);
  EXPECT_DOUBLE_EQ(learning_rate(kOptimizer, schedule, 100, 100), 1e-3);
}

TEST(LearningRate, WithoutWarmUpStartsNearTheTop) {
  const ScheduleSpec schedule{.type = "cosine", .warmup = 0, .min_lr = 0};
  EXPECT_DOUBLE_EQ(learning_rate(kOptimizer, schedule, 1, 2), 5e-4);
  EXPECT_DOUBLE_EQ(learning_rate(kOptimizer, schedule, 2, 2), 0);
}

TEST(LearningRate, WarmUpAsLongAsTheRunReachesTheTop) {
  const ScheduleSpec schedule{.type = "cosine", .warmup = 10, .min_lr = 1e-4};
  EXPECT_DOUBLE_EQ(learning_rate(kOptimizer, schedule, 10, 10), 1e-3);
}

TEST(ClipFactor, ScalesOnlyWhatIsTooLong) {
  EXPECT_EQ(clip_factor(1.0, 0.5), 1.0);
  EXPECT_EQ(clip_factor(1.0, 4.0), 0.25);
  EXPECT_EQ(clip_factor(0.0, 4.0), 1.0);
  EXPECT_EQ(clip_factor(1.0, 0.0), 1.0);
}

}  // namespace
}  // namespace motley
