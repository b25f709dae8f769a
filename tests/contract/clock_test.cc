// What every Clock does.

#include "core/clock.h"

#include <gtest/gtest.h>

namespace motley {
namespace {

struct RealClock {
  Clock& clock() { return steady_clock(); }
};

struct ClockByHand {
  ManualClock manual;
  Clock& clock() { return manual; }
};

template <class Implementation>
class ClockContract : public ::testing::Test {
 protected:
  Clock& clock() { return implementation_.clock(); }
  Implementation implementation_;
};

using Implementations = ::testing::Types<RealClock, ClockByHand>;
TYPED_TEST_SUITE(ClockContract, Implementations);

TYPED_TEST(ClockContract, NeverGoesBack) {
  Nanos before = this->clock().now();
  for (int i = 0; i < 1000; ++i) {
    const Nanos now = this->clock().now();
    EXPECT_GE(now, before);
    before = now;
  }
}

TYPED_TEST(ClockContract, SleepsUntilTheDeadlineAtLeast) {
  const Nanos deadline = this->clock().now() + nanos_of_seconds(0.001);
  this->clock().sleep_until(deadline);
  EXPECT_GE(this->clock().now(), deadline);
}

TYPED_TEST(ClockContract, ADeadlineThatIsOverMovesNothingBack) {
  this->clock().sleep_until(this->clock().now() + nanos_of_seconds(0.001));
  const Nanos before = this->clock().now();
  this->clock().sleep_until(before - nanos_of_seconds(1));
  EXPECT_GE(this->clock().now(), before);
}

}  // namespace
}  // namespace motley
