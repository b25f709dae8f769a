// Profiles made of figures and counted work: the formula by hand, and what must hold of any.

#include "planner/costs/catalog_profile.h"

#include <gtest/gtest.h>

#include <random>

#include "core/spec/profile_fit.h"

namespace motley {
namespace {

PassWork pass_of(double product_flops, double product_bytes, double other_bytes, int operations,
                 int sums = 0) {
  return {.product_flops = product_flops,
          .product_bytes = product_bytes,
          .other_flops = 0,
          .other_bytes = other_bytes,
          .operations = operations,
          .sums = sums};
}

/// Forward and backward twice that, growing with the samples.
WorkTable table_of(double flops, double bytes, int layers = 4) {
  WorkTable table;
  table.update_flops = 16e6;
  table.update_bytes = 32e6;
  for (const auto& [layer, share, parts] :
       {std::tuple("model", 1.0, layers + 1.0), std::tuple("embedding", 1.0, 0.1),
        std::tuple("block", 1.0, 1.0), std::tuple("block", 0.5, 0.5),
        std::tuple("head", 1.0, 0.9)}) {
    LayerWork work;
    work.layer = layer;
    work.share = share;
    const int sums = share < 1 ? 2 : 0;
    if (share < 1) work.sum_bytes_per_sample = 1000;
    for (const int samples : {1, 2, 4, 8})
      work.points.push_back(
          {samples, Bytes(1000),
           pass_of(flops * parts * samples, bytes * parts, bytes * samples, 10, sums),
           pass_of(2 * flops * parts * samples, 2 * bytes * parts, 2 * bytes * samples, 20, sums)});
    table.layers.push_back(work);
  }
  for (int samples = 1; samples <= 8; ++samples)
    table.memory.push_back({samples, Bytes(1000), Bytes(100 * samples)});
  return table;
}

const CatalogAssumptions kAssumed{.product_efficiency = 0.5,
                                  .bandwidth_efficiency = 0.8,
                                  .operation_overhead = Nanos(3000),
                                  .host_bytes_per_second = 20e9,
                                  .through_host = {8e9, Nanos(30'000)},
                                  .between_hosts = {1e9, Nanos(50'000)}};

CatalogDevice card(double tflops, double bytes_per_second) {
  return {.type = "card",
          .aliases = {},
          .memory = Bytes(16'000'000'000),
          .bytes_per_second = bytes_per_second,
          .tflops =
              {.fp64 = 0, .fp32 = tflops / 4, .tf32 = 0, .fp16 = tflops, .bf16 = tflops, .fp8 = 0},
          .link = {50e9, Nanos(10'000)}};
}

DeviceSpec gpu(const std::string& id, const std::string& type = "card") {
  DeviceSpec device;
  device.id = id;
  device.host = id.substr(0, id.find('/'));
  device.type = type;
  return device;
}

JobSpec job_of(Precision precision) {
  JobSpec job;
  job.model = {"gpt", 4, 2, 16, 8, 64};
  job.train.global_batch = 8;
  job.train.precision = precision;
  return job;
}

TEST(CatalogProfile, TakesWhatTheSlowerOfComputingAndMovingTakes) {
  const DeviceRates rates = catalog_rates(card(100, 1e12), kAssumed, Precision::kBf16);
  // 50 TFLOP/s and 800 GB/s are reached. Products: computing is slower; the rest only moves.
  WorkTable table;
  table.layers.push_back(
      {.layer = "block",
       .points = {{2, Bytes(1), pass_of(1e12, 8e9, 16e9, 10), pass_of(1e12, 80e9, 16e9, 20)}}});
  table.memory = {{1, Bytes(1), Bytes(1)}};
  const DeviceProfile profile = profile_at(rates, table);
  const CurvePoint& point = profile.curves[0].points[0];
  EXPECT_NEAR(point.forward_seconds, 0.02 + 0.02 + 30e-6, 1e-9);
  EXPECT_NEAR(point.seconds - point.forward_seconds, 0.1 + 0.02 + 60e-6, 1e-9);
  EXPECT_EQ(profile.evidence, Evidence::kSimulated);
}

TEST(CatalogProfile, OfAPaceIsItsFormula) {
  const DeviceRates rates =
      paced_rates({.speed = 0.5, .overhead = Nanos(200'000), .half_batch = 1}, 1e9);
  WorkTable table;
  table.update_flops = 1e6;
  table.layers.push_back(
      {.layer = "block",
       .share = 0.5,
       .points = {{2, Bytes(1), pass_of(1e6, 1e9, 1e9, 10, 1), pass_of(2e6, 1e9, 1e9, 10, 3)}}});
  table.memory = {{1, Bytes(1), Bytes(1)}};
  const DeviceProfile profile = profile_at(rates, table);
  const CurvePoint& point = profile.curves[0].points[0];
  EXPECT_NEAR(point.forward_seconds, 1e6 / 0.5e9 * 1.5 + 0.0002, 1e-12);
  EXPECT_NEAR(point.seconds, 3e6 / 0.5e9 * 1.5 + 4 * 0.0002, 1e-12);
  EXPECT_EQ(profile.curves[0].sums, 4);
  EXPECT_DOUBLE_EQ(profile.step_overhead_seconds, 0.0002);
  EXPECT_DOUBLE_EQ(profile.update_seconds, 0.002);
}

TEST(CatalogProfile, AFasterDeviceIsNeverSlower) {
  std::mt19937 random(3);
  std::uniform_real_distribution<double> draw(1, 4);
  for (int i = 0; i < 50; ++i) {
    const WorkTable table = table_of(1e9 * draw(random), 1e6 * draw(random));
    const CatalogDevice slow = card(20 * draw(random), 2e11 * draw(random));
    CatalogDevice fast = slow;
    fast.tflops.bf16 *= draw(random);
    fast.bytes_per_second *= draw(random);
    const DeviceProfile a = profile_at(catalog_rates(slow, kAssumed, Precision::kBf16), table);
    const DeviceProfile b = profile_at(catalog_rates(fast, kAssumed, Precision::kBf16), table);
    for (size_t curve = 0; curve < a.curves.size(); ++curve)
      for (size_t point = 0; point < a.curves[curve].points.size(); ++point)
        EXPECT_LE(b.curves[curve].points[point].seconds, a.curves[curve].points[point].seconds);
    EXPECT_LE(b.update_seconds, a.update_seconds);
    EXPECT_GE(b.best_speed(), a.best_speed());
  }
}

TEST(CatalogProfile, HasAllThatAPlannerAsksFor) {
  const CatalogDevice figures = card(100, 1e12);
  const WorkTable table = table_of(1e9, 1e6);
  FleetSpec fleet;
  fleet.devices = {gpu("a/0"), gpu("a/1"), gpu("b/0")};
  const JobSpec job = job_of(Precision::kBf16);
  std::vector<DeviceToSimulate> devices;
  for (const DeviceSpec& device : fleet.devices)
    devices.push_back({&device, &figures, figures.memory, {{Precision::kBf16, &table}}});
  const CatalogProfile made = catalog_profile(job, fleet, kAssumed, devices);
  const auto no_machine = [](const DeviceSpec&) { return Machine{}; };
  EXPECT_FALSE(misfit(made.profile, job, fleet, no_machine))
      << *misfit(made.profile, job, fleet, no_machine);
  ASSERT_EQ(made.profile.devices.size(), 3U);
  const DeviceProfile& device = made.profile.devices[2];
  EXPECT_EQ(device.device, "b/0");
  EXPECT_EQ(device.precision, Precision::kBf16);
  EXPECT_EQ(device.memory_limit, figures.memory);
  EXPECT_EQ(device.memory.size(), 8U);
  EXPECT_NE(device.curve("model"), nullptr);
  EXPECT_NE(device.curve("block", 0.5), nullptr);
  EXPECT_GT(device.update_seconds, 0);
  EXPECT_GT(device.host_update_seconds, device.update_seconds);
  // Within host a, where like devices are, and between the two; b has one device.
  ASSERT_EQ(made.profile.links.size(), 2U);
  EXPECT_EQ(made.assumed.size(), 2U);
  EXPECT_DOUBLE_EQ(made.profile.links[0].bytes_per_second, 50e9);
  EXPECT_DOUBLE_EQ(made.profile.links[1].bytes_per_second, 1e9);
}

TEST(CatalogProfile, TakesLinksFromTheFleetAndAssumesTheOthers) {
  const CatalogDevice one = card(100, 1e12), other = card(50, 1e12);
  const WorkTable table = table_of(1e9, 1e6);
  FleetSpec fleet;
  fleet.devices = {gpu("a/0"), gpu("a/1"), gpu("b/0"), gpu("c/0")};
  fleet.links = {{{"b", "a"}, 5e9, Nanos(7000)}};
  std::vector<DeviceToSimulate> devices;
  for (const DeviceSpec& device : fleet.devices)
    devices.push_back(
        {&device, device.id == "a/0" ? &one : &other, one.memory, {{Precision::kBf16, &table}}});
  const CatalogProfile made = catalog_profile(job_of(Precision::kBf16), fleet, kAssumed, devices);
  ASSERT_EQ(made.profile.links.size(), 4U);                       // a-a, a-b, a-c, b-c
  EXPECT_DOUBLE_EQ(made.profile.links[0].bytes_per_second, 8e9);  // unlike ones: through the host
  EXPECT_DOUBLE_EQ(made.profile.links[1].bytes_per_second, 5e9);
  EXPECT_DOUBLE_EQ(made.profile.links[1].latency_seconds, 7e-6);
  EXPECT_EQ(made.assumed.size(), 3U);
}

TEST(CatalogProfile, TriesTheSamePrecisionsAsMeasuringWould) {
  using Precisions = std::vector<Precision>;
  const DeviceSpec device = gpu("a/0");
  CatalogDevice figures = card(100, 1e12);
  const auto of = [&](Precision asked) {
    return precisions_to_simulate(job_of(asked), device, &figures);
  };
  EXPECT_EQ(*of(Precision::kAuto), (Precisions{Precision::kBf16, Precision::kFp32}));
  EXPECT_EQ(*of(Precision::kFp16), (Precisions{Precision::kFp16}));
  figures.tflops.bf16 = 0;
  EXPECT_EQ(*of(Precision::kAuto), (Precisions{Precision::kFp16, Precision::kFp32}));
  const auto refused = of(Precision::kBf16);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidSpec);
  EXPECT_NE(refused.error().message.find("asks for bf16"), std::string::npos);
}

TEST(CatalogProfile, IsOfTheFastestPrecision) {
  const WorkTable table = table_of(1e11, 1e6);
  CatalogDevice figures = card(100, 1e12);
  FleetSpec fleet;
  fleet.devices = {gpu("a/0")};
  const auto precision_with = [&](double fp32) {
    figures.tflops.fp32 = fp32;
    const std::vector<DeviceToSimulate> devices = {
        {fleet.devices.data(),
         &figures,
         figures.memory,
         {{Precision::kBf16, &table}, {Precision::kFp32, &table}}}};
    return catalog_profile(job_of(Precision::kAuto), fleet, kAssumed, devices)
        .profile.devices[0]
        .precision;
  };
  EXPECT_EQ(precision_with(20), Precision::kBf16);
  EXPECT_EQ(precision_with(400), Precision::kFp32);
}

}  // namespace
}  // namespace motley
