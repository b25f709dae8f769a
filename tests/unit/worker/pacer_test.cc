#include "worker/train/pacer.h"

#include <gtest/gtest.h>

namespace motley {
namespace {

DeviceSpec paced_device(double speed, Nanos overhead, double half_batch) {
  DeviceSpec device;
  device.kind = DeviceKind::kCpu;
  device.paced = PaceSpec{.speed = speed, .overhead = overhead, .half_batch = half_batch};
  return device;
}

TEST(Pacer, VirtualSectionTakesExactlyTheEmulatedTime) {
  Pacer pacer(paced_device(0.5, Nanos(2'000'000), 4), PaceClock::kVirtual, 1e9);
  const double start = pacer.now();
  pacer.begin_section();
  pacer.charge(1e9, 4);  // 2 s at full efficiency, half of it at half_batch samples
  pacer.charge(5e8, 0);  // 1 s, whatever the batch
  EXPECT_NEAR(pacer.end_section(), 0.002 + 4.0 + 1.0, 1e-9);
  EXPECT_NEAR(pacer.now() - start, 5.002, 1e-9);
  EXPECT_EQ(pacer.sections(), 1);
  EXPECT_EQ(pacer.overruns(), 0);
}

TEST(Pacer, OverheadIsPaidOncePerSection) {
  Pacer pacer(paced_device(1, Nanos(1'000'000), 0), PaceClock::kVirtual, 1e9);
  pacer.begin_section();
  for (int i = 0; i < 5; ++i) pacer.charge(1e6, 1);
  EXPECT_NEAR(pacer.end_section(), 0.001 + 0.005, 1e-9);
}

TEST(Pacer, EmptySectionTakesNoTime) {
  Pacer pacer(paced_device(1, Nanos(1'000'000), 0), PaceClock::kVirtual, 1e9);
  pacer.begin_section();
  EXPECT_EQ(pacer.end_section(), 0);
  EXPECT_EQ(pacer.sections(), 0);
}

TEST(Pacer, SleepClockWaitsAndCountsOverruns) {
  Pacer slow(paced_device(1, Nanos(0), 0), PaceClock::kSleep, 1e9);
  slow.begin_section();
  slow.charge(5e6, 0);  // 5 ms
  EXPECT_GE(slow.end_section(), 0.005);

  Pacer impossible(paced_device(1, Nanos(0), 0), PaceClock::kSleep, 1e18);
  impossible.begin_section();
  impossible.charge(1, 0);  // no machine does anything in 1e-18 s
  impossible.end_section();
  EXPECT_EQ(impossible.overruns(), 1);
}

TEST(Pacer, UnpacedDeviceKeepsRealTime) {
  DeviceSpec device;
  Pacer pacer(device, PaceClock::kSleep, 0);
  const double before = pacer.now();
  pacer.begin_section();
  pacer.charge(1e15, 8);
  EXPECT_LT(pacer.end_section(), 1.0);
  EXPECT_GE(pacer.now(), before);
  EXPECT_EQ(pacer.sections(), 0);
}

}  // namespace
}  // namespace motley
