// Under the virtual clock measuring is exact, and so is counting: a profile made of counted work
// and a pace must be the one that was measured.

#include <gtest/gtest.h>

#include "planner/costs/catalog_profile.h"
#include "tests/support/measured_fleet.h"
#include "worker/profiler/count_device.h"

namespace motley {
namespace {

using testing::measured_by_threads;

JobSpec counted_job(int layers = 2) {
  JobSpec job;
  job.model = {.type = "gpt", .layers = layers, .heads = 4, .width = 32, .context = 8, .vocab = 64};
  job.train.global_batch = 12;
  return job;
}

DeviceSpec paced_device(double speed, Bytes memory) {
  DeviceSpec device;
  device.id = "h/0";
  device.host = "h";
  device.kind = DeviceKind::kCpu;
  device.type = "paced";
  device.memory = memory;
  device.paced = PaceSpec{.speed = speed, .overhead = Nanos(2'000'000), .half_batch = 0.5};
  return device;
}

FleetSpec fleet_of_one(const DeviceSpec& device) {
  FleetSpec fleet;
  fleet.clock = PaceClock::kVirtual;
  fleet.pace_flops = 1e9;
  fleet.devices = {device};
  return fleet;
}

WorkTable counted(const JobSpec& job, Bytes memory) {
  return count_device(job, {.kind = DeviceKind::kCpu,
                            .precision = Precision::kFp32,
                            .threads = 1,
                            .memory_limit = memory});
}

DeviceProfile simulated_of(const JobSpec& job, const FleetSpec& fleet, const WorkTable& table) {
  const DeviceSpec& device = fleet.devices.front();
  return catalog_profile(job, fleet, {},
                         {{&device, nullptr, *device.memory, {{Precision::kFp32, &table}}}})
      .profile.devices.front();
}

void expect_same_curve(const LayerCurve& measured, const DeviceProfile& simulated) {
  const std::string what = measured.layer + " " + std::to_string(measured.share);
  const LayerCurve* curve = simulated.curve(measured.layer, measured.share, measured.recompute);
  ASSERT_NE(curve, nullptr) << what;
  EXPECT_EQ(curve->sums, measured.sums) << what;
  EXPECT_DOUBLE_EQ(curve->sum_bytes_per_sample, measured.sum_bytes_per_sample) << what;
  ASSERT_EQ(curve->points.size(), measured.points.size()) << what;
  for (size_t i = 0; i < measured.points.size(); ++i) {
    const CurvePoint &is = curve->points[i], &was = measured.points[i];
    EXPECT_EQ(is.micro_batch, was.micro_batch) << what;
    constexpr double kNanosecondsOfAClock = 1e-8;
    EXPECT_NEAR(is.seconds, was.seconds, kNanosecondsOfAClock) << what;
    if (was.forward_seconds == 0) continue;  // of the whole model it is not told apart
    EXPECT_NEAR(is.forward_seconds, was.forward_seconds, kNanosecondsOfAClock) << what;
  }
}

void expect_same(const DeviceProfile& measured, const DeviceProfile& simulated) {
  EXPECT_EQ(simulated.curves.size(), measured.curves.size());
  for (const LayerCurve& curve : measured.curves) expect_same_curve(curve, simulated);
  EXPECT_NEAR(simulated.step_overhead_seconds, measured.step_overhead_seconds, 1e-8);
  EXPECT_NEAR(simulated.update_seconds, measured.update_seconds, 1e-8);
  EXPECT_NEAR(simulated.host_update_seconds, measured.host_update_seconds,
              1e-3 * measured.host_update_seconds);  // measured of a layer, scaled
  EXPECT_EQ(simulated.memory_limit, measured.memory_limit);
  for (size_t i = 0; i < std::min(simulated.memory.size(), measured.memory.size()); ++i) {
    EXPECT_EQ(simulated.memory[i].micro_batch, measured.memory[i].micro_batch);
    EXPECT_EQ(simulated.memory[i].fixed, measured.memory[i].fixed);
    EXPECT_EQ(simulated.memory[i].activations, measured.memory[i].activations);
  }
}

TEST(SimulatedProfile, OfAPaceIsWhatIsMeasured) {
  const JobSpec job = counted_job();
  for (const double speed : {1.0, 0.3}) {
    const FleetSpec fleet = fleet_of_one(paced_device(speed, Bytes(1 << 30)));
    const Profile measured = measured_by_threads(job, fleet);
    const WorkTable table = counted(job, Bytes(1 << 30));
    EXPECT_EQ(table.memory.size(), 12U);
    expect_same(measured.devices.front(), simulated_of(job, fleet, table));
  }
}

TEST(SimulatedProfile, OfADeviceTooSmallForTheModelHasItsLayers) {
  const JobSpec job = counted_job(6);
  const Bytes small(700'000);
  const FleetSpec fleet = fleet_of_one(paced_device(1, small));
  const Profile measured = measured_by_threads(job, fleet);
  const WorkTable table = counted(job, small);
  ASSERT_EQ(table.memory.size(), 1U);
  EXPECT_GT(table.memory[0].total(), small);
  const DeviceProfile simulated = simulated_of(job, fleet, table);
  EXPECT_EQ(simulated.curve("model"), nullptr);
  EXPECT_NE(simulated.curve("block"), nullptr);
  expect_same(measured.devices.front(), simulated);
}

TEST(SimulatedProfile, TwiceTheLayersTakeAboutTwiceAsLong) {
  const CatalogDevice card{
      .type = "card",
      .aliases = {},
      .memory = Bytes(16'000'000'000),
      .bytes_per_second = 1e12,
      .tflops = {.fp64 = 0, .fp32 = 20, .tf32 = 0, .fp16 = 0, .bf16 = 100, .fp8 = 0},
      .link = {}};
  const auto seconds_of_layers = [&](int layers) {
    JobSpec job = counted_job(layers);
    job.model.width = 256;
    job.model.context = 128;
    const WorkTable table = count_device(job, {.kind = DeviceKind::kCuda,
                                               .precision = Precision::kBf16,
                                               .threads = 1,
                                               .memory_limit = card.memory});
    return profile_at(catalog_rates(card, {}, Precision::kBf16), table)
        .curve("model")
        ->seconds_at(4);
  };
  const double once = seconds_of_layers(12), twice = seconds_of_layers(24);
  EXPECT_GT(twice, 1.9 * once);
  EXPECT_LT(twice, 2.0 * once);  // embedding and head are there once
}

TEST(SimulatedProfile, LayersAddUpToTheModel) {
  const JobSpec job = counted_job();
  const WorkTable table = counted(job, Bytes(1 << 30));
  const auto flops = [&](const std::string& layer) {
    for (const LayerWork& work : table.layers) {
      if (work.layer != layer || work.share < 1 || work.recompute != Recompute::kNone) continue;
      const WorkPoint& one = work.points.front();
      return one.forward.product_flops + one.backward.product_flops;
    }
    return -1.0;
  };
  EXPECT_DOUBLE_EQ(flops("model"), flops("embedding") + 2 * flops("block") + flops("head"));
  // Products of a block, forward: 8·width² for attention's matrices and 16·width² for the MLP's a
  // token, and 4·context·width for scores and values; backward twice (attention 2.5 times) that.
  const double tokens = 8, width = 32, context = 8;
  EXPECT_GE(flops("block"), tokens * 3 * 24 * width * width);
  EXPECT_LE(flops("block"),
            tokens * (3 * 24 * width * width + 3.5 * 4 * context * width + 2 * 16 * 4 * width));
}

}  // namespace
}  // namespace motley
