#include "scheduler/report/axis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace motley {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::Le;

std::vector<std::string> labels(const Axis& axis) {
  std::vector<std::string> texts;
  for (const double tick : axis.ticks()) texts.push_back(axis.label(tick));
  return texts;
}

TEST(Axis, RoundedEndsOnTicks) {
  const Axis axis = Axis::rounded(0.13, 0.97, 5);
  EXPECT_THAT(axis.low(), DoubleNear(0, 1e-12));
  EXPECT_THAT(axis.high(), DoubleNear(1, 1e-12));
  EXPECT_THAT(labels(axis), ElementsAre("0.0", "0.2", "0.4", "0.6", "0.8", "1.0"));
}

TEST(Axis, ExactKeepsItsEnds) {
  const Axis axis = Axis::exact(1, 200, 4);
  EXPECT_EQ(axis.low(), 1);
  EXPECT_EQ(axis.high(), 200);
  EXPECT_THAT(labels(axis), ElementsAre("50", "100", "150", "200"));
}

TEST(Axis, PlacesValuesFromZeroToOne) {
  const Axis axis = Axis::exact(-2, 6, 4);
  EXPECT_EQ(axis.place(-2), 0);
  EXPECT_EQ(axis.place(2), 0.5);
  EXPECT_EQ(axis.place(6), 1);
  EXPECT_THAT(labels(axis), ElementsAre("-2", "0", "2", "4", "6"));
}

TEST(Axis, OneValueStillHasAnExtent) {
  for (const double value : {0.0, 3.0, -1e-9}) {
    const Axis axis = Axis::rounded(value, value, 5);
    EXPECT_LT(axis.low(), axis.high());
    EXPECT_GE(axis.place(value), 0);
    EXPECT_THAT(axis.place(value), Le(1));
  }
}

TEST(Axis, CountsAreLabelledWithWholeNumbers) {
  EXPECT_THAT(labels(Axis::counted(0, 1, 8)), ElementsAre("0", "1"));
  EXPECT_THAT(labels(Axis::counted(0, 3, 8)), ElementsAre("0", "1", "2", "3"));
  EXPECT_EQ(labels(Axis::counted(0, 1000, 4)), labels(Axis::exact(0, 1000, 4)));
}

TEST(Axis, LabelsHaveTheDecimalsTheyNeed) {
  EXPECT_EQ(labels(Axis::rounded(0, 0.004, 4)).back(), "0.004");
  EXPECT_EQ(labels(Axis::rounded(0, 40000, 4)).back(), "40000");
}

}  // namespace
}  // namespace motley
