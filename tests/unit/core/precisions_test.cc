#include "core/spec/precisions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/spec/reader.h"

namespace motley {
namespace {

constexpr const char* kMixed =
    "version: 1\n"
    "nodes:\n"
    "  - host: a1\n"
    "    devices:\n"
    "      - {type: card, kind: cpu}\n"
    "      - {type: A100}\n"
    "      - {type: RTX3090, kind: cuda}\n";

FleetSpec devices_of(std::vector<size_t> numbers) {
  const FleetSpec all = *parse_fleet(kMixed, "fleet.yaml");
  FleetSpec some = all;
  some.devices.clear();
  for (const size_t number : numbers) some.devices.push_back(all.devices[number]);
  return some;
}

std::string refusal(const FleetSpec& fleet, Precision precision) {
  JobSpec job;
  job.source = "job.yaml";
  job.train.precision = precision;
  const Result<Unit> checked = check_precisions(fleet, job);
  if (checked) return "";
  EXPECT_EQ(checked.error().code, ErrorCode::kInvalidSpec);
  return checked.error().to_string();
}

TEST(Precisions, AnyFleetComputesInFp32) {
  for (const Precision precision : {Precision::kAuto, Precision::kFp32})
    EXPECT_EQ(refusal(devices_of({0, 1, 2}), precision), "");
  EXPECT_EQ(refusal(devices_of({0}), Precision::kFp64), "");
}

TEST(Precisions, AGpuAskedForFp64IsRefusedWhereItIsWritten) {
  EXPECT_THAT(refusal(devices_of({2}), Precision::kFp64),
              ::testing::AllOf(::testing::StartsWith("fleet.yaml:7:"),
                               ::testing::HasSubstr("a1/2 (kind cuda) computes in fp32"),
                               ::testing::HasSubstr("train.precision is fp64")));
  EXPECT_THAT(refusal(devices_of({0, 1}), Precision::kFp64),
              ::testing::StartsWith("fleet.yaml:6:"));
}

TEST(Precisions, EachTypeMayHaveItsOwn) {
  const FleetSpec fleet = devices_of({0, 1, 2});
  JobSpec job;
  job.train.precision_by_type = {{"card", Precision::kBf16}};
  EXPECT_TRUE(check_precisions(fleet, job));
  EXPECT_EQ(precision_computed(job, fleet.devices[0]), Precision::kBf16);
  EXPECT_EQ(precision_computed(job, fleet.devices[1]), Precision::kFp32);
  job.train.precision_by_type = {{"a100", Precision::kFp32}, {"a100-40gb", Precision::kFp16}};
  EXPECT_EQ(precision_wanted(job, "A100-40GB"), Precision::kFp16) << "the longer name";
  EXPECT_EQ(precision_wanted(job, "A100-80GB"), Precision::kFp32);
  EXPECT_EQ(precision_wanted(job, "A1000"), Precision::kAuto);
  job.train.precision_by_type = {{"RTX3090", Precision::kTf32}};
  EXPECT_TRUE(check_precisions(fleet, job));
  EXPECT_EQ(precision_computed(job, fleet.devices[2]), Precision::kTf32);
}

TEST(Precisions, Fp8IsForWhoAsks) {
  const FleetSpec fleet = devices_of({0, 1});
  JobSpec job;
  job.train.precision = Precision::kFp8;
  EXPECT_TRUE(check_precisions(fleet, job));
  for (const DeviceSpec& device : fleet.devices) {
    EXPECT_EQ(precision_computed(job, device), Precision::kFp8);
    EXPECT_FALSE(precision_open(job, device));
    EXPECT_EQ(precision_allowed(job, device, Precision::kBf16), Precision::kFp8);
  }
  job.train.precision_by_type = {{"A100", Precision::kBf16}};
  EXPECT_EQ(precision_computed(job, fleet.devices[1]), Precision::kBf16);
}

TEST(Precisions, AutoLeavesAGpusToThePlan) {
  const FleetSpec fleet = devices_of({0, 1});
  const DeviceSpec &card = fleet.devices[0], &gpu = fleet.devices[1];
  JobSpec job;
  EXPECT_TRUE(precision_open(job, gpu));
  EXPECT_EQ(precision_allowed(job, gpu, Precision::kBf16), Precision::kBf16);
  EXPECT_EQ(precision_allowed(job, gpu, Precision::kAuto), Precision::kFp32);
  EXPECT_EQ(precision_allowed(job, gpu, Precision::kFp64), Precision::kFp32);
  EXPECT_EQ(precision_allowed(job, card, Precision::kBf16), Precision::kFp32)
      << "a CPU emulates it";
  job.train.precision_by_type = {{"A100", Precision::kFp16}};
  EXPECT_EQ(precision_allowed(job, gpu, Precision::kBf16), Precision::kFp16) << "it is named";
  job.train.precision_by_type.clear();
  job.train.numerics = Numerics::kExact;
  EXPECT_FALSE(precision_open(job, gpu)) << "what is computed comes from the job alone";
}

TEST(Precisions, TheReferenceHasNoReducedOne) {
  FleetSpec fleet = devices_of({0});
  fleet.devices[0].kind = DeviceKind::kReference;
  EXPECT_THAT(
      refusal(fleet, Precision::kBf16),
      ::testing::HasSubstr("(kind reference) computes in fp64, but train.precision is bf16"));
}

TEST(Precisions, ExactNeedsOne) {
  JobSpec job;
  job.train.numerics = Numerics::kExact;
  job.train.precision_by_type = {{"card", Precision::kBf16}};
  EXPECT_FALSE(check_precisions(devices_of({0, 1}), job));
}

TEST(Precisions, OfDevicesThatNobodyWroteTheJobIsThePlace) {
  FleetSpec found = devices_of({1});
  found.devices[0].place = {};
  EXPECT_THAT(refusal(found, Precision::kFp64), ::testing::StartsWith("job.yaml"));
}

}  // namespace
}  // namespace motley
