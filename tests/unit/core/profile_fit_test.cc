#include "core/spec/profile_fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/spec/profile_key.h"

namespace motley {
namespace {

using ::testing::HasSubstr;
using ::testing::Optional;

const Machine kHere{"here", "Fast CPU"};
Machine unknown(const DeviceSpec&) { return {}; }
Machine here(const DeviceSpec&) { return kHere; }

JobSpec tiny() {
  JobSpec job;
  job.model = {"gpt", 1, 1, 8, 8, 256};
  job.train.global_batch = 4;
  return job;
}

FleetSpec cpus(int count) {
  FleetSpec fleet;
  for (int i = 0; i < count; ++i) {
    DeviceSpec device;
    device.host = "localhost";
    device.id = "localhost/" + std::to_string(i);
    device.kind = DeviceKind::kCpu;
    device.type = "cpu";
    fleet.devices.push_back(device);
  }
  return fleet;
}

FleetSpec paced(PaceClock clock) {
  FleetSpec fleet = cpus(1);
  fleet.clock = clock;
  fleet.pace_flops = 1e9;
  fleet.devices[0].paced = PaceSpec{};
  return fleet;
}

Profile measured(const JobSpec& job, const FleetSpec& fleet) {
  Profile profile;
  profile.job_key = profile_job_key(job);
  profile.job = profile_job(job);
  for (const DeviceSpec& device : fleet.devices) {
    DeviceProfile& entry = profile.devices.emplace_back();
    entry.device = device.id;
    entry.type = device.type;
    entry.identity = device_identity(fleet, device, kHere);
  }
  return profile;
}

TEST(ProfileFit, FitsWhatItIsOf) {
  EXPECT_EQ(misfit(measured(tiny(), cpus(2)), tiny(), cpus(2), here), std::nullopt);
  EXPECT_EQ(misfit(measured(tiny(), cpus(2)), tiny(), cpus(2), unknown), std::nullopt)
      << "planned elsewhere";
}

TEST(ProfileFit, NamesWhatDiffersInTheJob) {
  const Profile profile = measured(tiny(), cpus(1));
  JobSpec wide = tiny();
  wide.model.width = 64;
  EXPECT_THAT(misfit(profile, wide, cpus(1), unknown),
              Optional(HasSubstr("model.width is 8 in the profile, 64 in the job")));
  JobSpec precise = tiny();
  precise.train.precision = Precision::kFp64;
  EXPECT_THAT(misfit(profile, precise, cpus(1), unknown), Optional(HasSubstr("precision")));
  JobSpec exact = tiny();
  exact.train.numerics = Numerics::kExact;
  EXPECT_THAT(misfit(profile, exact, cpus(1), unknown), Optional(HasSubstr("numerics")));
  Profile more = profile;
  more.job_key = "of another version";
  more.job.insert(1, R"("model_extra": 1, )");
  EXPECT_THAT(misfit(more, tiny(), cpus(1), unknown),
              Optional(HasSubstr("model_extra is 1 in the profile, and not in the job")));
}

TEST(ProfileFit, NamesTheDeviceThatIsAnother) {
  const Profile profile = measured(tiny(), cpus(2));
  EXPECT_THAT(misfit(profile, tiny(), cpus(3), unknown), Optional(HasSubstr("localhost/2")));
  FleetSpec renamed = cpus(2);
  renamed.devices[1].type = "gpu";
  EXPECT_THAT(misfit(profile, tiny(), renamed, unknown),
              Optional(HasSubstr("localhost/1: type is cpu in the profile, gpu here")));
  FleetSpec smaller = cpus(2);
  smaller.devices[0].memory = Bytes(1000);
  EXPECT_THAT(misfit(profile, tiny(), smaller, unknown),
              Optional(HasSubstr("localhost/0: memory is not given in the profile, 1000 here")));
}

TEST(ProfileFit, AnotherMachineIsAnotherDeviceWhereItIsKnown) {
  const Profile profile = measured(tiny(), cpus(1));
  const auto elsewhere = [](const DeviceSpec&) { return Machine{"elsewhere", "Fast CPU"}; };
  EXPECT_THAT(misfit(profile, tiny(), cpus(1), elsewhere), Optional(HasSubstr("machine")));
  const auto upgraded = [](const DeviceSpec&) { return Machine{"here", "Faster CPU"}; };
  EXPECT_THAT(misfit(profile, tiny(), cpus(1), upgraded), Optional(HasSubstr("processor")));
}

TEST(ProfileFit, NeighboursSlowADeviceUnlessItIsPaced) {
  EXPECT_NE(device_identity(cpus(1), cpus(1).devices[0], {}),
            device_identity(cpus(2), cpus(2).devices[0], {}));
  const FleetSpec fleet = paced(PaceClock::kSleep);
  FleetSpec more = fleet;
  more.devices.push_back(more.devices[0]);
  EXPECT_EQ(device_identity(fleet, fleet.devices[0], {}),
            device_identity(more, more.devices[0], {}));
}

TEST(ProfileFit, OnTheVirtualClockTheMachineIsOfNoConsequence) {
  const FleetSpec timeless = paced(PaceClock::kVirtual);
  EXPECT_EQ(device_identity(timeless, timeless.devices[0], kHere),
            device_identity(timeless, timeless.devices[0], {}));
  const FleetSpec real = paced(PaceClock::kSleep);
  EXPECT_NE(device_identity(real, real.devices[0], kHere),
            device_identity(real, real.devices[0], {}))
      << "its links are those of the machine";
}

/// Devices with these shares of one GPU.
FleetSpec shares(const std::vector<int>& sms) {
  FleetSpec fleet = cpus(static_cast<int>(sms.size()));
  int taken = 0;
  for (size_t i = 0; i < sms.size(); ++i) {
    fleet.devices[i].kind = DeviceKind::kCuda;
    fleet.devices[i].uuid = "GPU-1";
    fleet.devices[i].share = ShareSpec{sms[i], taken};
    taken += sms[i];
  }
  return fleet;
}

TEST(ProfileFit, AShareOfAGpuIsADeviceOfItsOwn) {
  const FleetSpec fleet = shares({64, 32, 32});
  const auto identity = [&](size_t device) {
    return device_identity(fleet, fleet.devices[device], kHere);
  };
  EXPECT_NE(identity(0), identity(1));
  EXPECT_EQ(identity(1), identity(2)) << "which of its multiprocessors is no matter";
  FleetSpec whole = shares({64});
  whole.devices[0].share.reset();
  EXPECT_THAT(misfit(measured(tiny(), shares({64})), tiny(), whole, here),
              Optional(HasSubstr("share is {\"sms\":64} in the profile, not given here")));
  EXPECT_THAT(misfit(measured(tiny(), shares({64, 32})), tiny(), shares({64, 48}), here),
              Optional(HasSubstr("shares_on_gpu is [64,32] in the profile, [64,48] here")));
}

TEST(ProfileFit, EachDeviceSaysWhichKindOfResultItsTimesAre) {
  EXPECT_EQ(evidence_of(cpus(1).devices[0]), Evidence::kMeasured);
  EXPECT_EQ(evidence_of(shares({8}).devices[0]), Evidence::kThrottled);
  EXPECT_EQ(evidence_of(paced(PaceClock::kSleep).devices[0]), Evidence::kPaced);
}

TEST(ProfileFit, NameHostAndPriceIdentifyNothing) {
  FleetSpec fleet = cpus(1);
  const std::string before = device_identity(fleet, fleet.devices[0], kHere);
  fleet.devices[0].price_per_hour = 3;
  fleet.devices[0].id = "other/0";
  fleet.devices[0].host = "other";
  EXPECT_EQ(device_identity(fleet, fleet.devices[0], kHere), before);
}

TEST(ProfileFit, AProfileByHandIsJudgedByItsTypes) {
  Profile profile = measured(tiny(), cpus(1));
  profile.job.clear();
  profile.devices[0].identity = "by hand";
  EXPECT_EQ(misfit(profile, tiny(), cpus(1), unknown), std::nullopt);
  profile.devices[0].type = "A100";
  EXPECT_THAT(misfit(profile, tiny(), cpus(1), unknown), Optional(HasSubstr("type is A100")));
  profile.job_key = "other";
  EXPECT_THAT(misfit(profile, tiny(), cpus(1), unknown), Optional(HasSubstr("another model")));
}

}  // namespace
}  // namespace motley
