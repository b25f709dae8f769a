#include "core/step_statistics.h"

#include <gtest/gtest.h>

namespace motley {
namespace {

Plan plan_averaging(int across) {
  Plan plan;
  plan.ranks = {{"a/0", "a", "card"}, {"b/0", "b", "card"}};
  plan.sync.across = across;
  return plan;
}

TEST(TypicalStep, IsTheMedian) {
  TypicalStep typical(plan_averaging(1));
  EXPECT_FALSE(typical.seconds());
  for (const double seconds : {3.0, 1.0, 2.0, 90.0, 1.0}) typical.add(seconds);
  EXPECT_EQ(typical.seconds(), 2);
}

TEST(TypicalStep, HoldsItsPartOfAnAverage) {
  TypicalStep typical(plan_averaging(4));
  for (int round = 0; round < 5; ++round)
    for (const double seconds : {1.0, 1.0, 1.0, 9.0}) typical.add(seconds);
  EXPECT_EQ(typical.seconds(), 3);
}

TEST(TypicalStep, OfStepsThatDoNotFollowEachOtherIsTheirMean) {
  TypicalStep typical(plan_averaging(4));
  for (const double seconds : {1.0, 1.0, 1.0, 9.0}) {
    typical.add(seconds);
    typical.interrupt();
  }
  EXPECT_EQ(typical.seconds(), 3);
}

}  // namespace
}  // namespace motley
