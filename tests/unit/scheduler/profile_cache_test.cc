#include "scheduler/run/profile_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_directory.h"

namespace motley {
namespace {

class ProfileCacheTest : public ::testing::Test {
 protected:
  static JobSpec job(int width = 8) {
    JobSpec spec;
    spec.name = "tiny";
    spec.model = {"gpt", 1, 1, width, 8, 256};
    spec.train.global_batch = 4;
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

  static Profile profile(const FleetSpec& measured) {
    Profile result;
    result.code_version = "test";
    result.job_key = "key";
    for (const DeviceSpec& device : measured.devices) {
      DeviceProfile entry;
      entry.device = device.id;
      entry.type = device.type;
      entry.evidence = Evidence::kPaced;
      entry.memory_limit = Bytes(1000);
      LayerCurve curve;
      curve.points = {{1, 0.5, 0, 1}};
      entry.curves = {curve};
      entry.memory = {{1, Bytes(10), Bytes(10)}};
      result.devices.push_back(entry);
    }
    return result;
  }

  ProfileCache cache(const std::string& code = "c0de") const {
    return ProfileCache(directory_.path() + "/profiles", code);
  }

  testing::TemporaryDirectory directory_;
};

TEST_F(ProfileCacheTest, FindsWhatWasStored) {
  EXPECT_FALSE(cache().find(job(), fleet(2)));
  ASSERT_TRUE(cache().store(job(), fleet(2), profile(fleet(2))));
  const auto found = cache().find(job(), fleet(2));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->devices.size(), 2u);
}

TEST_F(ProfileCacheTest, ASmallerFleetIsCoveredByALargerMeasurement) {
  ASSERT_TRUE(cache().store(job(), fleet(3), profile(fleet(3))));
  const auto found = cache().find(job(), fleet(2));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->devices.size(), 2u);
  EXPECT_EQ(found->devices[1].device, "a/1");
}

TEST_F(ProfileCacheTest, EveryDeviceMustBeKnown) {
  ASSERT_TRUE(cache().store(job(), fleet(2), profile(fleet(2))));
  EXPECT_FALSE(cache().find(job(), fleet(3)));
}

TEST_F(ProfileCacheTest, MissesWhenAnythingChangesItDependsOn) {
  ASSERT_TRUE(cache().store(job(), fleet(2), profile(fleet(2))));
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

TEST_F(ProfileCacheTest, PricesChangeNothing) {
  ASSERT_TRUE(cache().store(job(), fleet(2), profile(fleet(2))));
  FleetSpec dearer = fleet(2);
  dearer.devices[0].price_per_hour = 3;
  EXPECT_TRUE(cache().find(job(), dearer));
}

}  // namespace
}  // namespace motley
