#include "core/spec/fleet_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace motley {
namespace {

using ::testing::ElementsAre;

DeviceSpec device(const std::string& host, int index, const std::string& type, int64_t gigabytes) {
  DeviceSpec spec;
  spec.id = host + "/" + std::to_string(index);
  spec.host = host;
  spec.type = type;
  if (gigabytes > 0) spec.memory = Bytes(gigabytes * 1'000'000'000);
  return spec;
}

FleetSpec mixed_fleet() {
  FleetSpec fleet;
  fleet.source = "lab.yaml";
  fleet.devices = {device("a1", 0, "A100-40GB", 40), device("a1", 1, "A100-80GB", 80),
                   device("r1", 0, "RTX3090", 24), device("r1", 1, "RTX3090", 0)};
  return fleet;
}

std::vector<std::string> ids(const FleetSpec& fleet) {
  std::vector<std::string> all;
  for (const DeviceSpec& spec : fleet.devices) all.push_back(spec.id);
  return all;
}

TEST(FleetSpec, KnowsItsHostsAndDevices) {
  const FleetSpec fleet = mixed_fleet();
  EXPECT_THAT(fleet.hosts(), ElementsAre("a1", "r1"));
  EXPECT_FALSE(fleet.single_host());
  ASSERT_NE(fleet.find("r1/0"), nullptr);
  EXPECT_EQ(fleet.find("r1/0")->type, "RTX3090");
  EXPECT_EQ(fleet.find("r1/9"), nullptr);
}

TEST(FleetSpec, TypesThatLookLikeSlipsAreTold) {
  JobSpec job;
  job.train.precision_by_type = {{"RTX390", Precision::kFp16}, {"A100", Precision::kBf16}};
  job.devices.limits = {{"h100", 2}, {"rtx3090", 1}, {"RTX3080", 1}};
  EXPECT_THAT(misspelt_types(mixed_fleet(), job),
              ElementsAre("'train.precision': no device is of the type 'RTX390' (did you mean "
                          "'RTX3090'?)"))
      << "the job limits what it has, so that the other names are of other fleets";
}

TEST(FleetSpec, KnowsWhoTakesTheSameMemory) {
  DeviceSpec half = device("a1", 0, "half", 0), other_half = device("a1", 1, "half", 0);
  half.uuid = other_half.uuid = "GPU-1";
  half.share = ShareSpec{64, 0};
  other_half.share = ShareSpec{64, 64};
  EXPECT_TRUE(takes_same_memory(half, half));
  EXPECT_TRUE(takes_same_memory(half, other_half));
  other_half.uuid = "GPU-2";
  EXPECT_FALSE(takes_same_memory(half, other_half));
  const FleetSpec gpus = mixed_fleet();
  EXPECT_FALSE(takes_same_memory(gpus.devices[0], gpus.devices[1])) << "two GPUs, not told apart";
  DeviceSpec cpu = device("a1", 2, "cpu", 0), far_cpu = device("b1", 0, "cpu", 0);
  cpu.kind = far_cpu.kind = DeviceKind::kCpu;
  EXPECT_TRUE(takes_same_memory(cpu, gpus.devices[0])) << "its rank needs some of the host's";
  EXPECT_FALSE(takes_same_memory(gpus.devices[0], cpu));
  EXPECT_FALSE(takes_same_memory(cpu, far_cpu));
}

TEST(FleetSpec, GpusWithoutAUuidAreTheSameOne) {
  FleetSpec fleet;
  fleet.devices = {device("a1", 0, "one", 0), device("b1", 0, "one", 0)};
  EXPECT_TRUE(check_told_apart(fleet)) << "each is the first of its host";
  fleet.devices.push_back(device("a1", 1, "two", 0));
  const auto told_apart = check_told_apart(fleet);
  ASSERT_FALSE(told_apart);
  EXPECT_EQ(told_apart.error().code, ErrorCode::kInvalidSpec);
  EXPECT_EQ(told_apart.error().message,
            "without a uuid a1/1 is the first GPU of its host, as a1/0 is: give each its uuid, as "
            "`motley devices` shows it");
  fleet.devices.back().uuid = "GPU-1";
  EXPECT_TRUE(check_told_apart(fleet));
  fleet.devices.back().uuid = "";
  fleet.devices.back().share = ShareSpec{8, 0};
  EXPECT_FALSE(check_told_apart(fleet));
  fleet.devices[0].share = ShareSpec{8, 8};
  EXPECT_TRUE(check_told_apart(fleet)) << "shares of one GPU";
}

TEST(FleetSpec, TypesMatchByWholeParts) {
  EXPECT_TRUE(type_matches("A100-40GB", "A100"));
  EXPECT_TRUE(type_matches("A100-40GB", "a100-40gb"));
  EXPECT_FALSE(type_matches("A1000", "A100"));
  EXPECT_FALSE(type_matches("A100", "A100-40GB"));
  EXPECT_FALSE(type_matches("A100", ""));
}

JobSpec of_types(std::vector<std::string> types) {
  JobSpec job;
  job.source = "job.yaml";
  job.devices.types = std::move(types);
  return job;
}
JobSpec with_memory_from(int64_t gigabytes) {
  JobSpec job = of_types({});
  job.devices.memory.low = Bytes(gigabytes * 1'000'000'000);
  return job;
}
JobSpec unmixed(std::vector<std::string> types) {
  JobSpec job = of_types(std::move(types));
  job.devices.mix = false;
  return job;
}
JobSpec at_least(int count) {
  JobSpec job = of_types({});
  job.devices.count = CountRange{count, 8};
  return job;
}

TEST(FleetSpec, LimitsKeepTheFirstAndWhatIsPinned) {
  const FleetSpec fleet = mixed_fleet();
  JobSpec job = of_types({});
  job.devices.limits = {{"a100", 1}, {"RTX3090", 0}};
  EXPECT_THAT(ids(*admitted(fleet, job)), ElementsAre("a1/0"));
  EXPECT_EQ(why_not_admitted(*fleet.find("a1/1"), job),
            "not admitted by resources.devices.limits (a100: 1)");
  job.pin.replicas.emplace_back().stages.emplace_back().devices = {"a1/1"};
  EXPECT_THAT(ids(*admitted(fleet, job)), ElementsAre("a1/1"));
  job.devices.limits = {{"A100", 2}, {"A100-80GB", 0}};
  job.pin = {};
  EXPECT_THAT(ids(*admitted(fleet, job)), ElementsAre("a1/0", "r1/0", "r1/1"));
  job.devices.count = CountRange{4, 4};
  EXPECT_EQ(admitted(fleet, job).error().message,
            "the job wants 4 devices and 3 in lab.yaml fit it within its limits");
}

TEST(FleetSpec, TheFirstAlternativeThatCanBeHadIsTheJobs) {
  const FleetSpec fleet = mixed_fleet();
  JobSpec job = of_types({});
  job.any_of.resize(2);
  for (size_t i = 0; i < 2; ++i) job.any_of[i].key = "any_of." + std::to_string(i);
  job.any_of[0].types = {"H100"};
  job.any_of[1].types = {"RTX3090"};
  JobSpec chosen = job;
  ASSERT_TRUE(choose_alternative(fleet, chosen));
  EXPECT_TRUE(chosen.any_of.empty());
  EXPECT_THAT(ids(*admitted(fleet, chosen)), ElementsAre("r1/0", "r1/1"));
  EXPECT_EQ(unmet_demand(*fleet.find("a1/0"), chosen), "any_of.1.types (RTX3090)");
  job.any_of[1].types = {"V100"};
  const auto none = choose_alternative(fleet, job);
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().message,
              ::testing::AllOf(::testing::HasSubstr("any_of.0: no device of type H100"),
                               ::testing::HasSubstr("any_of.1: no device of type V100")));
}

TEST(FleetSpec, AdmitsByTypeAndMemory) {
  const FleetSpec fleet = mixed_fleet();
  EXPECT_EQ(ids(*admitted(fleet, {})), ids(fleet));
  EXPECT_THAT(ids(*admitted(fleet, of_types({"a100"}))), ElementsAre("a1/0", "a1/1"));
  EXPECT_THAT(ids(*admitted(fleet, with_memory_from(30))), ElementsAre("a1/0", "a1/1"));
  EXPECT_THAT(ids(*admitted(fleet, unmixed({"RTX3090"}))), ElementsAre("r1/0", "r1/1"));
}

TEST(FleetSpec, SaysWhichDemandKeepsADeviceOut) {
  const FleetSpec fleet = mixed_fleet();
  const DeviceSpec& a100 = *fleet.find("a1/0");
  const DeviceSpec& rtx = *fleet.find("r1/0");
  EXPECT_EQ(unmet_demand(a100, of_types({"a100", "H100"})), "");
  EXPECT_EQ(unmet_demand(rtx, of_types({"a100", "H100"})), "resources.devices.types (a100, H100)");
  EXPECT_EQ(unmet_demand(rtx, with_memory_from(30)), "resources.devices.memory (27.9 GiB..)");
}

TEST(FleetSpec, NamesTheFirstUnmetDemandWhereTheJobMakesIt) {
  const auto error_of = [](JobSpec job) {
    int line = 1;
    for (const char* key : {"count", "types", "memory", "mix"})
      job.places["resources.devices." + std::string(key)] = {"job.yaml", line++, 9};
    const Result<FleetSpec> fleet = admitted(mixed_fleet(), job);
    return fleet ? "admitted" : fleet.error().to_string();
  };
  EXPECT_EQ(error_of(at_least(5)),
            "job.yaml:1:9: the job wants 5 devices and 4 in lab.yaml fit it");
  EXPECT_EQ(error_of(of_types({"H100"})),
            "job.yaml:2:9: no device of type H100 (lab.yaml has A100-40GB, A100-80GB, RTX3090)");
  EXPECT_EQ(
      error_of(with_memory_from(90)),
      "job.yaml:3:9: no device of the wanted type in lab.yaml says it has 83.8 GiB.. of memory");
  EXPECT_EQ(error_of(unmixed({})),
            "job.yaml:4:9: the job forbids a mix and devices of several types in lab.yaml fit it: "
            "A100-40GB, A100-80GB, RTX3090 (name one in resources.devices.types)");
  EXPECT_EQ(admitted({}, {}).error().code, ErrorCode::kNoDevice);
}

TEST(FleetSpec, RefusesShapesThatTheDevicesAreTooFewFor) {
  using Count = std::optional<int>;
  const auto error_of = [](Count data, Count pipeline, Count tensor, Count most = {}) {
    JobSpec job = of_types({});
    job.parallel.data = data;
    job.parallel.pipeline = pipeline;
    job.parallel.tensor = tensor;
    if (most) job.devices.count = CountRange{1, *most};
    int line = 1;
    for (const char* key : {"data", "pipeline", "tensor"})
      job.places["parallel." + std::string(key)] = {"job.yaml", line++, 9};
    const Result<Unit> enough = check_parallel(mixed_fleet(), job);
    return enough ? "enough" : enough.error().to_string();
  };
  EXPECT_EQ(error_of({}, {}, {}), "enough");
  EXPECT_EQ(error_of(4, {}, {}), "enough");
  EXPECT_EQ(error_of(2, 2, {}), "enough");
  EXPECT_EQ(error_of(2, {}, 2), "enough") << "two hosts of two devices";
  EXPECT_EQ(error_of(5, {}, {}),
            "job.yaml:1:9: 'data': at least 5 devices are needed for 5 replicas; lab.yaml has 4 "
            "for the job (lower it, or leave it auto)");
  EXPECT_EQ(error_of(3, 2, {}),
            "job.yaml:1:9: 'data': at least 6 devices are needed for 3 replicas of 2 stages; "
            "lab.yaml has 4 for the job (lower it, or leave it auto)");
  EXPECT_EQ(error_of({}, 3, 2),
            "job.yaml:2:9: 'pipeline': at least 6 devices are needed for 3 stages of 2 devices "
            "each; lab.yaml has 4 for the job (lower it, or leave it auto)");
  EXPECT_EQ(error_of({}, 2, {}, 1),
            "job.yaml:2:9: 'pipeline': at least 2 devices are needed for 2 stages; "
            "resources.devices.count allows 1 (lower it, or leave it auto)");
  EXPECT_EQ(error_of({}, {}, 3),
            "job.yaml:3:9: 'tensor': 3 devices of one host share each stage; lab.yaml has them for "
            "0 of 1 stage (lower it, or leave it auto)");
}

}  // namespace
}  // namespace motley
