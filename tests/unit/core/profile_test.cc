#include "core/profile.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <nlohmann/json.hpp>

#include "core/spec/profile_key.h"
#include "tests/support/json_members.h"

namespace motley {
namespace {

using nlohmann::json;

/// fixed + per_sample · size, at each size.
LayerCurve straight_curve(double fixed, double per_sample, const std::vector<int>& sizes) {
  LayerCurve curve;
  for (const int size : sizes) curve.points.push_back({size, fixed + per_sample * size, 0.01, 5});
  curve.fit = fit_curve(curve.points);
  return curve;
}

Profile sample_profile() {
  DeviceProfile device;
  device.device = "a/0";
  device.type = "A100";
  device.identity = "GPU-1";
  device.evidence = Evidence::kThrottled;
  device.memory_limit = Bytes(1 << 30);
  device.curves = {straight_curve(0.004, 0.01, {1, 2, 4}), straight_curve(0, 0.1 / 3, {2})};
  device.curves[1].layer = "head";
  LayerCurve& shared = device.curves.emplace_back(straight_curve(0, 0.01, {1, 4}));
  shared.layer = "block";
  shared.share = 0.25;
  shared.recompute = Recompute::kMlp;
  shared.sums = 4;
  shared.sum_bytes_per_sample = 1024;
  for (CurvePoint& point : shared.points) point.forward_seconds = point.seconds / 4;
  device.step_overhead_seconds = 0.0002;
  device.update_seconds = 0.0009;
  device.host_update_seconds = 0.0014;
  device.host_link = HostLink{2.5e10, 2.6e10, 6e9, 7e9, 9e-6};
  device.memory = {{1, Bytes(1 << 20), Bytes(1 << 10)}, {3, Bytes(1 << 20), Bytes(3 << 10)}};
  DeviceProfile small = device;  // on which nothing fits
  small.device = "b/0";
  small.evidence = Evidence::kSimulated;
  small.curves.clear();
  small.host_link.reset();
  Profile profile;
  profile.code_version = "0.1.0 (bf1a1fb)";
  profile.job_key = "b1946ac92492d2347c6235b4d2611184";
  small.precision = Precision::kBf16;
  profile.devices = {device, small};
  profile.links = {{{"a", "b"}, 6e-5, 1.2e9}};
  profile.reductions = {{2, {"a", "b"}, Bytes(3670016), 0.0031}, {2, {}, Bytes(1), 0}};
  return profile;
}

std::string try_profile(const json& document) {
  const Result<Profile> profile = profile_from_json(document);
  return profile ? "" : profile.error().to_string();
}

TEST(ProfileJson, ComesBackWhole) {
  const json document = to_json(sample_profile());
  const Result<Profile> back = profile_from_json(json::parse(document.dump()));
  ASSERT_TRUE(back) << back.error().to_string();
  EXPECT_EQ(to_json(*back), document);
  EXPECT_EQ(back->devices[0].curve("head")->points[0].seconds, 0.1 / 3 * 2);
  EXPECT_EQ(back->devices[0].curve("block"), nullptr);
  ASSERT_NE(back->devices[0].curve("block", 0.25, Recompute::kMlp), nullptr);
  EXPECT_EQ(back->devices[0].curve("block", 0.25, Recompute::kMlp)->sums, 4);
  ASSERT_TRUE(back->devices[0].host_link);
  EXPECT_EQ(back->devices[0].host_link->pageable_to_host, 7e9);
  EXPECT_EQ(back->devices[1].host_link, std::nullopt) << "as in profiles of earlier versions";
  EXPECT_EQ(back->find("b/0")->evidence, Evidence::kSimulated);
  EXPECT_EQ(back->find("c/0"), nullptr);
}

RC_GTEST_PROP(ProfileJson, AnyTimeComesBackWithTheSameBits, ()) {
  Profile profile = sample_profile();
  const double seconds =
      static_cast<double>(*rc::gen::inRange<int64_t>(100'000'000, INT64_MAX)) / 3e18;
  profile.devices[0].curves[0].points[0].seconds = seconds;
  profile.devices[0].update_seconds = seconds / 7;
  const Result<Profile> back = profile_from_json(json::parse(to_json(profile).dump()));
  RC_ASSERT(back.has_value());
  RC_ASSERT(back->devices[0].curves[0].points[0].seconds == seconds);
  RC_ASSERT(back->devices[0].update_seconds == seconds / 7);
}

TEST(ProfileJson, EveryMemberIsNeededAndTyped) {
  testing::expect_members_are_needed(
      to_json(sample_profile()), try_profile,
      {"spread", "repetitions", "hosts", "forward_seconds", "share", "recompute", "sums",
       "sum_bytes_per_sample", "host_update_seconds", "precision"});
  testing::expect_members_are_typed(to_json(sample_profile()), try_profile);
}

TEST(LayerCurve, TellsTheForwardPassBetweenPoints) {
  LayerCurve curve = straight_curve(0, 0.01, {2, 4});
  curve.points[0].forward_seconds = 0.25 * curve.points[0].seconds;
  curve.points[1].forward_seconds = 0.50 * curve.points[1].seconds;
  EXPECT_NEAR(curve.forward_seconds_at(1), 0.25 * 0.01, 1e-12);
  EXPECT_NEAR(curve.forward_seconds_at(2), 0.25 * 0.02, 1e-12);
  EXPECT_NEAR(curve.forward_seconds_at(3), 0.375 * 0.03, 1e-12);
  EXPECT_NEAR(curve.forward_seconds_at(8), 0.50 * 0.08, 1e-12);
}

TEST(ProfileJson, AFitThatIsMissingIsComputed) {
  json document = to_json(sample_profile());
  document["devices"][0]["curves"][0].erase("fit");
  const Result<Profile> back = profile_from_json(document);
  ASSERT_TRUE(back) << back.error().to_string();
  EXPECT_EQ(to_json(*back), to_json(sample_profile()));
}

TEST(ProfileJson, NamesThePointerOfAFault) {
  using Pointer = json::json_pointer;
  const std::tuple<const char*, json, const char*> cases[] = {
      {"/version", 0, "/version: this program reads version 1, found 0"},
      {"/version", 2, "/version: this program reads version 1, found 2"},
      {"/devices", json::object(), "/devices: expected an array, found an object"},
      {"/devices/0", 7, "/devices/0: expected an object, found a number"},
      {"/devices/1/device", "a/0", "/devices/1/device: appears twice"},
      {"/devices/0/evidence", "guessed", "/devices/0/evidence: unknown word 'guessed'"},
      {"/devices/0/memory_limit", -1,
       "/devices/0/memory_limit: expected 0 to 2305843009213693951, found -1"},
      {"/devices/0/memory", json::array(), "/devices/0/memory: has no entry"},
      {"/devices/0/memory/0/micro_batch", 0,
       "/devices/0/memory/0/micro_batch: expected 1 to 1073741824, found 0"},
      {"/devices/0/memory/1/micro_batch", 1,
       "/devices/0/memory/1/micro_batch: must rise from one to the next"},
      {"/devices/0/memory/1/fixed", INT64_MAX,
       "/devices/0/memory/1/fixed: expected 0 to 2305843009213693951, found 9223372036854775807"},
      {"/devices/0/memory/1/activations", -5,
       "/devices/0/memory/1/activations: expected 0 to 2305843009213693951, found -5"},
      {"/devices/0/step_overhead_seconds", -1e-9,
       "/devices/0/step_overhead_seconds: expected 0.0 to 1000000000000.0, found -1e-09"},
      {"/devices/0/update_seconds", 1e13,
       "/devices/0/update_seconds: expected 0.0 to 1000000000000.0, found 10000000000000.0"},
      {"/devices/0/curves/1/layer", "model", "/devices/0/curves/1/layer: appears twice"},
      {"/devices/0/curves/0/points", json::array(), "/devices/0/curves/0/points: has no point"},
      {"/devices/0/curves/0/points/0/seconds", 0,
       "/devices/0/curves/0/points/0/seconds: expected 1e-15 to 1000000000000.0, found 0.0"},
      {"/devices/0/curves/0/points/0/spread", -1,
       "/devices/0/curves/0/points/0/spread: expected 0.0 to 1000000000000.0, found -1.0"},
      {"/devices/0/curves/0/points/2/micro_batch", 2,
       "/devices/0/curves/0/points/2/micro_batch: must rise from one to the next"},
      {"/devices/0/curves/0/fit/per_sample", -1,
       "/devices/0/curves/0/fit/per_sample: expected 0.0 to 1000000000000.0, found -1.0"},
      {"/devices/0/curves/0/fit/intercept", 0, "/devices/0/curves/0/fit: unknown key 'intercept'"},
      {"/links/0/between", {"a"}, "/links/0/between: must name two hosts"},
      {"/links/0/bytes_per_second", 0,
       "/links/0/bytes_per_second: expected 0.001 to 1e+18, found 0.0"},
      {"/links/0/latency_seconds", -1,
       "/links/0/latency_seconds: expected 0.0 to 1000000000000.0, found -1.0"},
      {"/reductions/0/ranks", 0, "/reductions/0/ranks: expected 1 to 1073741824, found 0"},
      {"/reductions/0/hosts", "a", "/reductions/0/hosts: expected an array, found a string"},
      {"/reductions/0/bytes", -1,
       "/reductions/0/bytes: expected 0 to 2305843009213693951, found -1"},
      {"/reductions/1/seconds", "fast", "/reductions/1/seconds: expected a number, found a string"},
      {"/date", "today", "/: unknown key 'date'"},
  };
  for (const auto& [pointer, value, error] : cases) {
    json document = to_json(sample_profile());
    document[Pointer(pointer)] = value;
    EXPECT_EQ(try_profile(document), error);
  }
  EXPECT_EQ(try_profile(nullptr), "/: expected an object, found null");
}

TEST(ProfileJobKey, IsTheSameInEveryBuildAndForEveryJobThatMeasuresAlike) {
  JobSpec job;
  job.model = {"gpt", 4, 4, 128, 64, 256};
  EXPECT_EQ(profile_job_key(job), "6e3c48e7407af1d536ba91121fc05d4e");
  const auto key_after = [&](auto change) {
    JobSpec other = job;
    change(other);
    return profile_job_key(other);
  };
  const std::string key = profile_job_key(job);
  EXPECT_EQ(key_after([](JobSpec& j) { j.train.global_batch = 7; }), key);
  EXPECT_EQ(key_after([](JobSpec& j) { j.train.optimizer.lr = 7; }), key);
  EXPECT_NE(key_after([](JobSpec& j) { j.model.context = 65; }), key);
  EXPECT_NE(key_after([](JobSpec& j) { j.train.numerics = Numerics::kExact; }), key);
  EXPECT_NE(key_after([](JobSpec& j) { j.train.precision = Precision::kFp64; }), key);
}

// --- curves ---

TEST(LayerCurve, BetweenPointsIsOnTheLineThroughThem) {
  LayerCurve curve;
  curve.points = {{2, 1.0, 0, 1}, {4, 3.0, 0, 1}, {8, 4.0, 0, 1}};
  curve.fit = {1, 0.5, 0};
  EXPECT_DOUBLE_EQ(curve.seconds_at(2), 1);
  EXPECT_DOUBLE_EQ(curve.seconds_at(3), 2);
  EXPECT_DOUBLE_EQ(curve.seconds_at(6), 3.5);
  EXPECT_DOUBLE_EQ(curve.seconds_at(8), 4);
  EXPECT_DOUBLE_EQ(curve.seconds_at(10), 5);    // on with the fit's slope
  EXPECT_DOUBLE_EQ(curve.seconds_at(1), 0.75);  // 1.5 / 2 of the first: as the fit falls
}

TEST(DeviceProfile, IsAsFastAsItsBestMicroBatch) {
  DeviceProfile device;
  EXPECT_EQ(device.best_speed(), 0);
  for (const char* layer : {"embedding", "block", "head"}) {
    device.curves.push_back(straight_curve(0.01, 0.01, {1, 4}));
    device.curves.back().layer = layer;
  }
  EXPECT_NEAR(device.best_speed(), 4 / (3 * 0.05), 1e-9) << "one layer after the other";
  device.curves.push_back(straight_curve(0.1, 0.1, {1, 4, 9}));
  EXPECT_NEAR(device.best_speed(), 9 / 1.0, 1e-9);
}

TEST(LayerCurve, FitFindsAStraightLine) {
  const CurveFit fit = straight_curve(0.25, 0.5, {1, 2, 4, 8}).fit;
  EXPECT_NEAR(fit.fixed, 0.25, 1e-12);
  EXPECT_NEAR(fit.per_sample, 0.5, 1e-12);
  EXPECT_LT(fit.residual, 1e-12);
}

TEST(LayerCurve, FitHasNoNegativePart) {
  // More than in proportion: without a fixed part.
  const CurveFit steep = fit_curve({{1, 1.0, 0, 1}, {2, 3.0, 0, 1}});
  EXPECT_EQ(steep.fixed, 0);
  // Relative errors of p - 1 and 2/3 p - 1 are least at p = (1 + 2/3) / (1 + 4/9).
  EXPECT_DOUBLE_EQ(steep.per_sample, 15.0 / 13.0);
  EXPECT_DOUBLE_EQ(steep.residual, 3.0 / 13.0);
  // Falling: without a slope.
  const CurveFit falling = fit_curve({{1, 3.0, 0, 1}, {2, 1.5, 0, 1}});
  EXPECT_EQ(falling.per_sample, 0);
  EXPECT_GT(falling.fixed, 0);
  // A single point says nothing of a fixed part.
  const CurveFit one = fit_curve({{4, 2.0, 0, 1}});
  EXPECT_EQ(one.fixed, 0);
  EXPECT_DOUBLE_EQ(one.per_sample, 0.5);
}

}  // namespace
}  // namespace motley
