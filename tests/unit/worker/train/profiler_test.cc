// Under the virtual clock measuring is exact: what comes out must be what the pace says.

#include "worker/profiler/profiler.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/spec/profile_fit.h"
#include "kernels/device.h"
#include "tests/support/measured_fleet.h"
#include "worker/engine/engine.h"

namespace motley {
namespace {

using testing::measured_by_threads;

constexpr double kPaceFlops = 1e9;
constexpr double kOverhead = 0.002;
constexpr double kHalfBatch = 0.5;

JobSpec tiny_job() {
  JobSpec job;
  job.model = {.type = "gpt", .layers = 1, .heads = 2, .width = 16, .context = 8, .vocab = 64};
  job.train.global_batch = 12;
  return job;
}

FleetSpec fleet_of(const std::vector<double>& speeds) {
  FleetSpec fleet;
  fleet.clock = PaceClock::kVirtual;
  fleet.pace_flops = kPaceFlops;
  for (size_t i = 0; i < speeds.size(); ++i) {
    DeviceSpec device;
    device.id = "h/" + std::to_string(i);
    device.host = "h";
    device.kind = DeviceKind::kCpu;
    device.type = "paced";
    device.memory = Bytes(1 << 30);
    device.paced = PaceSpec{
        .speed = speeds[i], .overhead = nanos_of_seconds(kOverhead), .half_batch = kHalfBatch};
    fleet.devices.push_back(device);
  }
  return fleet;
}

/// What was exchanged, by any group made of the one watched.
class Watched final : public Communicator {
 public:
  Watched(std::unique_ptr<Communicator> owned, std::vector<std::string>* operations)
      : owned_(std::move(owned)), inner_(*owned_), operations_(operations) {}
  Watched(Communicator& inner, std::vector<std::string>* operations)
      : inner_(inner), operations_(operations) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  std::string description() const override { return inner_.description(); }
  Result<Unit> all_reduce_sum(std::span<float> a) override { return inner_.all_reduce_sum(a); }
  Result<Unit> all_reduce_sum(std::span<double> a) override { return inner_.all_reduce_sum(a); }
  Result<Unit> all_reduce_sum(std::span<int64_t> a) override { return inner_.all_reduce_sum(a); }
  Result<Unit> all_reduce_max(std::span<int64_t> a) override { return inner_.all_reduce_max(a); }
  Result<std::vector<std::string>> all_gather(const std::string& mine) override {
    return inner_.all_gather(mine);
  }
  Result<Unit> broadcast(std::string& a, int root) override { return inner_.broadcast(a, root); }
  Result<Unit> barrier() override { return inner_.barrier(); }
  Result<Unit> send(std::span<const std::byte> a, int to) override { return inner_.send(a, to); }
  Result<Unit> receive(std::span<std::byte> a, int from) override {
    return inner_.receive(a, from);
  }
  Result<SendId> post(std::span<const std::byte> a, int to) override { return inner_.post(a, to); }
  Result<Unit> complete(SendId send) override { return inner_.complete(send); }
  Result<Unit> exchange(std::span<const Incoming> receives, std::span<const Outgoing> sends,
                        const std::string& operation) override {
    return inner_.exchange(receives, sends, operation);
  }
  int64_t bytes_sent() const override { return inner_.bytes_sent(); }
  std::unique_ptr<Communicator> group(const std::vector<int>& ranks) override {
    return std::make_unique<Watched>(inner_.group(ranks), operations_);
  }
  Result<std::unique_ptr<Reducer>> open_reducer(
      const ReductionPlan& plan, const Islands& islands,
      std::vector<std::vector<ElementRun>> runs) override {
    for (const ReductionPart& part : plan.parts)
      operations_->push_back("sum of " + std::to_string(part.elements));
    return inner_.open_reducer(plan, islands, std::move(runs));
  }
  void give_up(int status) override { inner_.give_up(status); }

 private:
  std::unique_ptr<Communicator> owned_;
  Communicator& inner_;
  std::vector<std::string>* operations_;
};

/// Of one micro-batch, as the program counts them.
double flops_of(const JobSpec& job, int samples) {
  DeviceSpec cpu;
  cpu.kind = DeviceKind::kCpu;
  auto device = open_device(cpu);
  EngineOptions options;
  options.model = job.model;
  options.micro_batches = {samples};
  return (*Engine::create(**device, options))->flops(samples).total();
}

TEST(Profiler, MeasuresExactlyTheEmulatedTimes) {
  const JobSpec job = tiny_job();
  const std::vector<double> speeds = {1.0, 0.25};
  const Profile profile = measured_by_threads(job, fleet_of(speeds));
  ASSERT_EQ(profile.devices.size(), 2U);
  for (size_t i = 0; i < speeds.size(); ++i) {
    const DeviceProfile& device = profile.devices[i];
    EXPECT_EQ(device.evidence, Evidence::kPaced);
    EXPECT_NEAR(device.step_overhead_seconds, kOverhead, 1e-8);
    EXPECT_NEAR(device.update_seconds,
                update_flops(parameter_count(job.model)) / (kPaceFlops * speeds[i]), 1e-8);
    ASSERT_NE(device.curve("model"), nullptr);
    for (const CurvePoint& point : device.curve("model")->points) {
      const double b = point.micro_batch;
      EXPECT_NEAR(
          point.seconds,
          flops_of(job, point.micro_batch) / (kPaceFlops * speeds[i]) * (b + kHalfBatch) / b, 1e-8)
          << "micro-batch " << point.micro_batch;
      EXPECT_LT(point.spread, 1e-6);
    }
    EXPECT_EQ(device.curve("model")->points.back().micro_batch, 12);
    EXPECT_EQ(device.memory.size(), 12U);
  }
  ASSERT_EQ(profile.reductions.size(), 1U);
  EXPECT_EQ(profile.reductions[0].seconds, 0);
  ASSERT_EQ(profile.links.size(), 1U);
  EXPECT_EQ(profile.links[0].between[0], "h");
  EXPECT_EQ(profile.links[0].between[1], "h");
  EXPECT_EQ(profile.links[0].latency_seconds, 0);
  EXPECT_EQ(profile.links[0].bytes_per_second, LinkProfile::kFree);
}

TEST(Profiler, TimesTheSumThatAStepForms) {
  const JobSpec job = tiny_job();
  const FleetSpec fleet = fleet_of({1.0, 1.0});
  std::vector<std::string> operations;  // of rank 0
  const auto done = run_inproc(2, [&](Communicator& world) -> Result<Unit> {
    std::vector<std::string> others;
    Watched watched(world, world.rank() == 0 ? &operations : &others);
    const DeviceSpec& spec = fleet.devices[0];
    MOTLEY_TRY(const auto device, open_device(spec));
    Pacer pacer(spec, fleet.clock, fleet.pace_flops);
    MOTLEY_TRY_VOID(measure_fleet(job, fleet, {{&device, 1}, *spec.memory, pacer}, watched,
                                  [](const std::string&) {}));
    return Unit{};
  });
  ASSERT_TRUE(done.has_value()) << done.error().to_string();
  EXPECT_EQ(operations,
            std::vector<std::string>({"sum of " + std::to_string(parameter_count(job.model))}));
}

TEST(Profiler, MeasuresLinksWithinAHostOnTheRealClock) {
  FleetSpec fleet = fleet_of({1000.0, 1000.0});
  fleet.clock = PaceClock::kSleep;
  const Profile profile = measured_by_threads(tiny_job(), fleet);
  ASSERT_EQ(profile.links.size(), 1U);
  EXPECT_GT(profile.links[0].latency_seconds, 0);
  EXPECT_LE(profile.links[0].bytes_per_second, LinkProfile::kFree);
  ASSERT_EQ(profile.reductions.size(), 1U);
  EXPECT_GT(profile.reductions[0].seconds, 0);
}

/// On hosts of their own; on the virtual clock nothing that is computed takes any time.
TEST(Profiler, MeasuresWhatSumsTakeOfComputingBesideThem) {
  JobSpec job = tiny_job();
  job.train.global_batch = 1;  // few micro-batches to measure
  for (const PaceClock clock : {PaceClock::kSleep, PaceClock::kVirtual}) {
    FleetSpec fleet = fleet_of({1, 1});
    fleet.clock = clock;
    for (size_t i = 0; i < fleet.devices.size(); ++i) {
      fleet.devices[i].host = "h" + std::to_string(i);
      fleet.devices[i].id = fleet.devices[i].host + "/0";
      fleet.devices[i].paced.reset();
    }
    const Profile profile = measured_by_threads(job, fleet);
    ASSERT_EQ(profile.reductions.size(), 1U);
    EXPECT_GE(profile.reductions[0].busy_share, 0);
    EXPECT_LE(profile.reductions[0].busy_share, clock == PaceClock::kVirtual ? 0 : 1);
  }
}

TEST(Profiler, SaysWhatItIsOf) {
  const JobSpec job = tiny_job();
  const FleetSpec fleet = fleet_of({1.0});
  const Profile profile = measured_by_threads(job, fleet);
  EXPECT_EQ(misfit(profile, job, fleet, [](const DeviceSpec&) { return this_machine(); }),
            std::nullopt);
  EXPECT_EQ(measured_micro_batches(profile), 12);
}

TEST(Profiler, MeasuresNoMicroBatchThatDoesNotFit) {
  const JobSpec job = tiny_job();
  FleetSpec fleet = fleet_of({1.0});
  EngineOptions options;
  options.model = job.model;
  const auto memory = estimate_memory(options, {}, 12);
  // Five samples and what is left free, not six.
  const auto five = static_cast<double>(memory[4].total().value());
  fleet.devices[0].memory = Bytes(std::llround(std::ceil(five / (1 - kMemoryHeadroom))));
  const Profile profile = measured_by_threads(job, fleet);
  ASSERT_EQ(profile.devices.size(), 1U);
  EXPECT_EQ(profile.devices[0].curve("model")->points.back().micro_batch, 5);

  fleet.devices[0].memory = Bytes(1000);  // nothing
  EXPECT_TRUE(measured_by_threads(job, fleet).devices[0].curves.empty());
}

// --- layers

/// Of all layers one after the other.
double summed(const DeviceProfile& device, const JobSpec& job, int micro_batch) {
  return device.curve("embedding")->seconds_at(micro_batch) +
         job.model.layers * device.curve("block")->seconds_at(micro_batch) +
         device.curve("head")->seconds_at(micro_batch);
}

TEST(Profiler, LayersSumToTheModel) {
  JobSpec job = tiny_job();
  job.model.layers = 3;
  const Profile profile = measured_by_threads(job, fleet_of({0.5}));
  ASSERT_EQ(profile.devices.size(), 1U);
  const DeviceProfile& device = profile.devices[0];
  for (const CurvePoint& point : device.curve("model")->points) {
    EXPECT_NEAR(summed(device, job, point.micro_batch) / point.seconds, 1, 1e-4)
        << "micro-batch " << point.micro_batch;
  }
  for (const char* layer : {"block", "head"}) {
    const CurvePoint& point = device.curve(layer)->points.front();
    EXPECT_GT(point.forward_seconds, 0.25 * point.seconds) << layer;
    EXPECT_LT(point.forward_seconds, 0.5 * point.seconds) << layer;
  }
}

TEST(Profiler, WhatIsComputedAgainTakesLongerAndWhatIsSharedLess) {
  const Profile profile = measured_by_threads(tiny_job(), fleet_of({1.0}));
  ASSERT_EQ(profile.devices.size(), 1U);
  const DeviceProfile& device = profile.devices[0];
  const auto seconds = [&](double share, Recompute part) {
    return device.curve("block", share, part)->seconds_at(4);
  };
  const double plain = seconds(1, Recompute::kNone);
  const double forward = device.curve("block")->forward_seconds_at(4);
  EXPECT_GT(seconds(1, Recompute::kAttention), plain);
  EXPECT_GT(seconds(1, Recompute::kMlp), plain);
  EXPECT_GT(seconds(1, Recompute::kBlock), seconds(1, Recompute::kMlp));
  EXPECT_LE(seconds(1, Recompute::kBlock), plain + forward * (1 + 1e-6));
  // Four sums cut a micro-batch of a shared block into as many more sections.
  const LayerCurve& half = *device.curve("block", 0.5);
  EXPECT_EQ(half.sums, 4);
  const double work = half.seconds_at(4) - 4 * device.step_overhead_seconds;
  EXPECT_NEAR(work / plain, 0.5, 0.03);
  EXPECT_EQ(half.sum_bytes_per_sample, 4.0 * 8 * 16 * sizeof(float));
}

TEST(Profiler, ADeviceTooSmallForTheModelIsMeasuredLayerByLayer) {
  JobSpec job = tiny_job();
  job.model.layers = 6;
  FleetSpec fleet = fleet_of({1.0, 0.5});
  EngineOptions options;
  options.model = job.model;
  fleet.devices[1].memory = Bytes(estimate_memory(options, {}, 1)[0].total().value() / 2);
  const Profile profile = measured_by_threads(job, fleet);
  ASSERT_EQ(profile.devices.size(), 2U);
  const DeviceProfile& big = profile.devices[0];
  const DeviceProfile& small = profile.devices[1];
  EXPECT_EQ(small.curve("model"), nullptr);
  ASSERT_NE(small.curve("block"), nullptr);
  EXPECT_NEAR(summed(small, job, 2) / summed(big, job, 2), 2, 1e-4);
  EXPECT_NEAR(small.step_overhead_seconds, kOverhead, 1e-8);
  EXPECT_NEAR(small.update_seconds / big.update_seconds, 2, 1e-4);
  EXPECT_NEAR(small.host_update_seconds, small.update_seconds, 1e-8);
}

}  // namespace
}  // namespace motley
