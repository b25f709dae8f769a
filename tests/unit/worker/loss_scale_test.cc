#include "worker/optimizer/loss_scale.h"

#include <gtest/gtest.h>

namespace motley {
namespace {

TEST(LossScale, WithoutFp16ThereIsNone) {
  LossScale scale({}, false);
  EXPECT_EQ(scale.exponent(), 0);
  EXPECT_FALSE(scale.lower());
  for (int step = 0; step < 5000; ++step) scale.keep();
  EXPECT_EQ(scale.exponent(), 0);
}

TEST(LossScale, FollowsOverflowsAndRisesAfterTwoThousandStepsWithoutAny) {
  LossScale scale({}, true);
  const int first = scale.exponent();
  EXPECT_TRUE(scale.lower());
  EXPECT_TRUE(scale.lower());
  EXPECT_EQ(scale.exponent(), first - 2);
  for (int step = 0; step < 1999; ++step) scale.keep();
  EXPECT_EQ(scale.exponent(), first - 2);
  scale.keep();
  EXPECT_EQ(scale.exponent(), first - 1);
  for (int step = 0; step < 1999; ++step) scale.keep();
  EXPECT_TRUE(scale.lower());  // which begins the count anew
  for (int step = 0; step < 1999; ++step) scale.keep();
  EXPECT_EQ(scale.exponent(), first - 2);
}

TEST(LossScale, EndsBelowAndAbove) {
  LossScale scale({}, true);
  int lowered = 0;
  while (scale.lower()) ASSERT_LT(++lowered, 100);
  EXPECT_FALSE(scale.lower());
  for (int step = 0; step < 100'000; ++step) scale.keep();
  EXPECT_EQ(scale.exponent(), 15);
}

TEST(LossScale, OfTheJobStaysAsItIs) {
  TrainSpec train;
  train.loss_scale = 256;
  LossScale scale(train, true);
  for (int step = 0; step < 5000; ++step) scale.keep();
  EXPECT_EQ(scale.exponent(), 8);
  EXPECT_FALSE(scale.lower());
  scale.restore({.exponent = 3, .kept_steps = 7});
  EXPECT_EQ(scale.exponent(), 8);
}

TEST(LossScale, GoesOnWhereACheckpointLeftIt) {
  LossScale scale({}, true);
  scale.lower();
  for (int step = 0; step < 1500; ++step) scale.keep();
  LossScale resumed({}, true);
  resumed.restore(scale.state());
  EXPECT_EQ(resumed.state(), scale.state());
  for (int step = 0; step < 500; ++step) resumed.keep();
  EXPECT_EQ(resumed.exponent(), scale.exponent() + 1);
}

}  // namespace
}  // namespace motley
