#include "scheduler/run/profile_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/file_system.h"
#include "core/spec/device_identity.h"
#include "core/spec/profile_key.h"
#include "scheduler/run/profile_text.h"
#include "tests/support/temporary_directory.h"

namespace motley {
namespace {

class ProfileCacheTest : public ::testing::Test {
 protected:
  static JobSpec job(int width = 8, int global_batch = 4) {
    JobSpec spec;
    spec.name = "tiny";
    spec.model = {"gpt", 1, 1, width, 8, 256};
    spec.train.global_batch = global_batch;
    return spec;
  }

  static FleetSpec fleet(int devices, double speed = 1) {
    FleetSpec spec;
    spec.pace_flops = 1e9;
    for (int i = 0; i < devices; ++i) {
      DeviceSpec device;
      device.host = "a";
      device.id = "a/" + std::to_string(i);
      device.kind = DeviceKind::kCpu;
      device.type = "card";
      device.paced = PaceSpec{};
      device.paced->speed = speed;
      spec.devices.push_back(device);
    }
    return spec;
  }

  /// As the worker would give it for this job.
  static Profile profile(const FleetSpec& measured, const JobSpec& of = job(), double seconds = 1) {
    Profile result;
    result.code_version = "test";
    result.job_key = profile_job_key(of);
    result.job = profile_job(of);
    for (const DeviceSpec& device : measured.devices) {
      DeviceProfile entry;
      entry.device = device.id;
      entry.type = device.type;
      entry.identity = device_identity(measured, device, this_machine());
      entry.evidence = Evidence::kPaced;
      entry.memory_limit = Bytes(1000);
      LayerCurve curve;
      curve.points = {{1, seconds, 0, 1}};
      entry.curves = {curve};
      for (int size = 1; size <= largest_profiled_micro_batch(of); ++size)
        entry.memory.push_back({size, Bytes(10), Bytes(10)});
      result.devices.push_back(entry);
    }
    return result;
  }

  ProfileCache cache(const std::string& code = "c0de") const {
    return ProfileCache(directory_.path() + "/profiles", code);
  }
  bool store(const Profile& profile, const JobSpec& of = job()) const {
    return cache().store(of, profile, kNow).has_value();
  }
  static double first_seconds(const std::optional<ProfileCache::Entry>& entry) {
    return entry ? entry->profile.devices.at(0).curves.at(0).points.at(0).seconds : 0;
  }

  static constexpr int64_t kNow = 1'700'000'000;

  testing::TemporaryDirectory directory_;
};

TEST_F(ProfileCacheTest, FindsWhatWasStored) {
  EXPECT_FALSE(cache().find(job(), fleet(2)));
  ASSERT_TRUE(store(profile(fleet(2))));
  const auto found = cache().find(job(), fleet(2));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->profile.devices.size(), 2u);
}

TEST_F(ProfileCacheTest, ASmallerFleetIsCoveredByALargerMeasurement) {
  ASSERT_TRUE(store(profile(fleet(3))));
  const auto found = cache().find(job(), fleet(2));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->profile.devices.size(), 2u);
  EXPECT_EQ(found->profile.devices[1].device, "a/1");
}

TEST_F(ProfileCacheTest, EveryDeviceMustBeKnown) {
  ASSERT_TRUE(store(profile(fleet(2))));
  EXPECT_FALSE(cache().find(job(), fleet(3)));
}

TEST_F(ProfileCacheTest, MissesWhenAnythingChangesItDependsOn) {
  ASSERT_TRUE(store(profile(fleet(2))));
  EXPECT_FALSE(cache().find(job(16), fleet(2))) << "model shape";
  EXPECT_FALSE(cache("other").find(job(), fleet(2))) << "code";
  EXPECT_FALSE(cache().find(job(), fleet(2, 0.5))) << "pace";
  FleetSpec clock = fleet(2);
  clock.clock = PaceClock::kVirtual;
  EXPECT_FALSE(cache().find(job(), clock)) << "clock";
  FleetSpec threads = fleet(2);
  threads.devices[1].threads = 2;
  EXPECT_FALSE(cache().find(job(), threads)) << "threads";
}

TEST_F(ProfileCacheTest, WhatWasMeasuredForASmallBatchDoesNotServeALargerOne) {
  ASSERT_TRUE(store(profile(fleet(2), job(8, 4)), job(8, 4)));
  EXPECT_FALSE(cache().find(job(8, 16), fleet(2)));
  ASSERT_TRUE(store(profile(fleet(2), job(8, 16)), job(8, 16)));
  EXPECT_EQ(cache().find(job(8, 16), fleet(2))->profile.devices[0].memory.size(), 16u);
  EXPECT_TRUE(cache().find(job(8, 4), fleet(2))) << "what reaches farther serves a smaller batch";
}

TEST_F(ProfileCacheTest, ARefreshedMeasurementHasNoRival) {
  ASSERT_TRUE(store(profile(fleet(3), job(), 1)));
  ASSERT_TRUE(store(profile(fleet(2), job(), 2)));
  ASSERT_TRUE(cache().forget(job(), fleet(1)));
  ASSERT_TRUE(store(profile(fleet(1), job(), 3)));
  EXPECT_EQ(first_seconds(cache().find(job(), fleet(1))), 3);
  EXPECT_FALSE(cache().find(job(), fleet(2))) << "its first device has newer figures";
}

TEST_F(ProfileCacheTest, ForgettingLeavesOtherJobsAndDevices) {
  ASSERT_TRUE(store(profile(fleet(2), job(16)), job(16)));
  ASSERT_TRUE(store(profile(fleet(2, 0.5))));
  ASSERT_TRUE(cache().forget(job(), fleet(2)));
  EXPECT_TRUE(cache().find(job(16), fleet(2)));
  EXPECT_TRUE(cache().find(job(), fleet(2, 0.5)));
}

TEST_F(ProfileCacheTest, OfSeveralTheOneWithTheFewestOtherDevicesIsTaken) {
  ASSERT_TRUE(store(profile(fleet(4), job(), 4)));
  ASSERT_TRUE(store(profile(fleet(2), job(), 2)));
  ASSERT_TRUE(store(profile(fleet(3), job(), 3)));
  EXPECT_EQ(first_seconds(cache().find(job(), fleet(2))), 2);
  EXPECT_EQ(first_seconds(cache().find(job(), fleet(1))), 2);
}

TEST_F(ProfileCacheTest, SaysWhenItWasMeasured) {
  ASSERT_TRUE(store(profile(fleet(1))));
  const auto found = cache().find(job(), fleet(1));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->measured_at, kNow);
  EXPECT_THAT(
      from_the_cache(*found, kNow + 3 * 3600 + 5),
      ::testing::AllOf(::testing::HasSubstr("from the cache, measured 2023-11-1"),
                       ::testing::HasSubstr("(3 hours ago)"), ::testing::HasSubstr("--refresh")));
  EXPECT_THAT(from_the_cache(*found, kNow + 86400), ::testing::HasSubstr("(1 day ago)"));
}

TEST_F(ProfileCacheTest, IsListedWithDateAndEveryDevice) {
  ASSERT_TRUE(store(profile(fleet(40))));
  const auto entries = cache().entries();
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_THAT(
      profile_line(entries[0]),
      ::testing::AllOf(::testing::StartsWith("tiny "), ::testing::HasSubstr("2023-11-1"),
                       ::testing::HasSubstr("a/0 (card)"), ::testing::EndsWith("a/39 (card)\n")));
}

TEST_F(ProfileCacheTest, DoubtsWhatVariesByHalf) {
  Profile steady = profile(fleet(2));
  EXPECT_TRUE(doubts(steady).empty());
  steady.devices[1].curves[0].points[0].spread = 0.8;
  const auto lines = doubts(steady);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], ::testing::HasSubstr("a/1: repeated measurements differ by 80 %"));
}

TEST_F(ProfileCacheTest, ACacheThatCannotBeIsOneClearError) {
  const std::string file = directory_.path() + "/file";
  ASSERT_TRUE(write_text_durably(real_file_system(), file, "not a directory"));
  const auto stored =
      ProfileCache(file + "/profiles", "c0de").store(job(), profile(fleet(1)), kNow);
  ASSERT_FALSE(stored);
  EXPECT_EQ(stored.error().code, ErrorCode::kNotPermitted);
  EXPECT_THAT(stored.error().message,
              ::testing::AllOf(::testing::HasSubstr(file), ::testing::HasSubstr("XDG_CACHE_HOME")));
}

TEST_F(ProfileCacheTest, PricesChangeNothing) {
  ASSERT_TRUE(store(profile(fleet(2))));
  FleetSpec dearer = fleet(2);
  dearer.devices[0].price_per_hour = 3;
  EXPECT_TRUE(cache().find(job(), dearer));
}

}  // namespace
}  // namespace motley
