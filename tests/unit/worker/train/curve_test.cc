// Curves from timings as other programs disturb them.

#include "worker/profiler/curve.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <nlohmann/json.hpp>

namespace motley {
namespace {

constexpr double kFixed = 0.004;
constexpr double kPerSample = 0.01;

/// A device of 10 ms a sample, and what delays some of its sections.
class Disturbed {
 public:
  /// The section number `call` (from 0) of this size and count takes `times` as long.
  void delay(int samples, int count, int call, double times) {
    delays_[{samples, count, call}] = times;
  }

  Result<double> section(int samples, int count) {
    const int call = calls_[{samples, count}]++;
    const auto delay = delays_.find({samples, count, call});
    const double seconds = kFixed + kPerSample * samples * count;
    return delay == delays_.end() ? seconds : seconds * delay->second;
  }

 private:
  std::map<std::tuple<int, int, int>, double> delays_;
  std::map<std::pair<int, int>, int> calls_;
};

MeasuredCurve measured(Disturbed& device) {
  ProfilerOptions options;
  options.seconds_per_point = 0;  // the least number of repetitions
  const auto curve = measure_curve(
      {1, 2, 3, 4, 6, 8}, [&](int samples, int count) { return device.section(samples, count); },
      options, [](const std::string&) {});
  EXPECT_TRUE(curve.has_value()) << (curve ? "" : curve.error().to_string());
  return curve ? *curve : MeasuredCurve{};
}

void expect_undisturbed(const MeasuredCurve& measured) {
  EXPECT_NEAR(measured.step_overhead_seconds, kFixed, 1e-9);
  ASSERT_EQ(measured.curve.points.size(), 6U);
  for (const CurvePoint& point : measured.curve.points)
    EXPECT_NEAR(point.seconds, kPerSample * point.micro_batch, 1e-9) << point.micro_batch;
  EXPECT_NEAR(measured.curve.fit.per_sample, kPerSample, 1e-9);
}

TEST(Curve, OneDisturbedRepetitionOfEachPointChangesNothing) {
  Disturbed device;
  for (const int size : {1, 2, 3, 4, 6, 8}) device.delay(size, 1, size % 3, 50);
  device.delay(1, 2, 1, 50);
  expect_undisturbed(measured(device));
}

TEST(Curve, APointThatWasDisturbedAllTheTimeIsMeasuredAgain) {
  Disturbed device;
  for (int call = 0; call < 3; ++call) device.delay(1, 1, call, 100);
  expect_undisturbed(measured(device));
}

TEST(Curve, SeveralDisturbedPointsAreMeasuredAgain) {
  Disturbed device;
  for (int call = 0; call < 6; ++call) device.delay(2, 1, call, 7);
  for (int call = 0; call < 3; ++call) device.delay(3, 1, call, 9);
  expect_undisturbed(measured(device));
}

TEST(Curve, WhateverTheNoiseItIsAProfile) {
  Disturbed device;  // every first timing of one micro-batch is absurd, also when repeated
  for (int call = 0; call < 100; ++call) device.delay(1, 1, call, 1000);
  const MeasuredCurve absurd = measured(device);
  for (const CurvePoint& point : absurd.curve.points) EXPECT_GT(point.seconds, 0);

  Profile profile;
  profile.devices.emplace_back().device = "a/0";
  profile.devices[0].curves = {absurd.curve};
  profile.devices[0].step_overhead_seconds = absurd.step_overhead_seconds;
  profile.devices[0].memory = {{1, Bytes(1), Bytes(1)}};
  EXPECT_TRUE(profile_from_json(to_json(profile)).has_value());
}

TEST(Curve, ACliffThatIsThereStays) {
  Disturbed device;
  for (int call = 0; call < 100; ++call) device.delay(3, 1, call, 2);
  const MeasuredCurve cliff = measured(device);
  EXPECT_NEAR(cliff.curve.points[2].seconds, 2 * (kFixed + 3 * kPerSample) - kFixed, 1e-9);
  EXPECT_NEAR(cliff.curve.points[3].seconds, 4 * kPerSample, 1e-9);
}

/// Computes for its quota of each period, then stands still until the next.
class HeldBack {
 public:
  /// Of work that takes `seconds` on a device that is not held back.
  double section(double seconds) {
    const double begin = now_;
    while (seconds > left_) {
      seconds -= left_;
      now_ += left_ + kPeriod - kQuota;
      left_ = kQuota;
    }
    now_ += seconds;
    left_ -= seconds;
    return now_ - begin;
  }

  static constexpr double kPeriod = 0.020, kQuota = 0.004;

 private:
  double now_ = 0, left_ = kQuota;
};

TEST(Curve, ADeviceThatIsHeldBackIsMeasuredAtTheSpeedThatItKeepsUp) {
  constexpr double kWork = 0.0007;  // of a sample: of most sections the quota sees nothing
  HeldBack device;
  ProfilerOptions options;
  options.least_repetition_seconds = options.share_of_point(options.seconds_per_point);
  const auto curve = measure_curve(
      {1, 2, 3, 4, 8, 16},
      [&](int samples, int count) -> Result<double> {
        return device.section(kWork * samples * count);
      },
      options, [](const std::string&) {});
  ASSERT_TRUE(curve.has_value()) << curve.error().to_string();
  for (const CurvePoint& point : curve->curve.points) {
    const double kept_up = kWork * point.micro_batch * HeldBack::kPeriod / HeldBack::kQuota;
    EXPECT_NEAR((point.seconds + curve->step_overhead_seconds) / kept_up, 1, 0.1)
        << point.micro_batch;
  }
}

TEST(Curve, BeginningASectionTakesNoLongerThanTheQuickestSection) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  EXPECT_EQ(start_seconds(0.001, 0.004, 0.3), 0.001);        // as measured
  EXPECT_EQ(start_seconds(0.052, 0.020, 0.3), 0.020);        // a disturbance of the whole model
  EXPECT_EQ(start_seconds(0.052, 0.001, 0.3), 0.006);        // 2 % of the model
  EXPECT_EQ(start_seconds(0.052, 0.001, kInfinite), 0.001);  // which was not measured
  EXPECT_EQ(start_seconds(0.052, kInfinite, 0.3), 0.052);    // no layer was
}

/// On a device so slow that a point takes minutes.
TEST(Curve, EveryRepetitionIsASignOfLife) {
  int sections = 0, most = 0;
  const auto curve = measure_curve(
      {1, 2, 4},
      [&](int samples, int count) -> Result<double> {
        most = std::max(most, ++sections);
        return 100.0 * samples * count;
      },
      ProfilerOptions{}, [&](const std::string&) { sections = 0; });
  ASSERT_TRUE(curve.has_value()) << curve.error().to_string();
  EXPECT_LE(most, 2) << "one of each of a pair";
}

TEST(Curve, NoTimeIsAnErrorThatSaysSo) {
  const auto curve = measure_curve(
      {1, 2}, [](int, int) -> Result<double> { return 0.0; }, ProfilerOptions{},
      [](const std::string&) {});
  ASSERT_FALSE(curve.has_value());
  EXPECT_EQ(curve.error().code, ErrorCode::kRunFailed);
  EXPECT_NE(curve.error().message.find("micro-batch of 1 took no time"), std::string::npos);
}

}  // namespace
}  // namespace motley
