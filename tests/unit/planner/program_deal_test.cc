#include "planner/plain/program_deal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "planner/costs/cost_model.h"
#include "planner/plain/program_plan.h"

namespace motley {
namespace {

TrainSpec batch_of(int samples, std::optional<int> grain = std::nullopt) {
  TrainSpec train;
  train.global_batch = samples;
  train.grain = grain;
  return train;
}

DeviceProfile device(const std::string& kind, std::vector<std::pair<int, double>> points,
                     double update = 0) {
  DeviceProfile profile;
  profile.device = profile.type = profile.identity = kind;
  profile.update_seconds = update;
  LayerCurve curve;
  for (const auto& [size, seconds] : points)
    curve.points.push_back({.micro_batch = size, .seconds = seconds, .repetitions = 3});
  curve.fit = fit_curve(curve.points);
  profile.curves.push_back(curve);
  return profile;
}

DeviceProfile linear(const std::string& kind, double per_sample, int most = 8) {
  return device(kind, {{1, per_sample}, {most, most * per_sample}});
}

TEST(EqualShares, AreAsEqualAsGrainsAllow) {
  for (int ranks = 1; ranks <= 5; ++ranks)
    for (int batch = 1; batch <= 23; ++batch)
      for (int grain = 1; grain <= std::min(batch, 6); ++grain) {
        int samples = 0, least = batch, most = 0;
        for (const RankShare& share : equal_shares(batch_of(batch, grain), ranks)) {
          const int grains = (share.samples + grain - 1) / grain;
          least = std::min(least, grains);
          most = std::max(most, grains);
          samples += share.samples;
          ASSERT_LE(share.micro_batch, std::min(grain, share.samples));
        }
        ASSERT_EQ(samples, batch);
        ASSERT_LE(most - least, 1);
      }
}

TEST(DealProgram, DevicesGetWhatTheyAreWorth) {
  const auto deal = deal_program(
      batch_of(32), {linear("quick", 0.01), linear("quick", 0.01), linear("slow", 0.03)});
  ASSERT_TRUE(deal) << deal.error().message;
  EXPECT_EQ(deal->shares[0].samples + deal->shares[1].samples + deal->shares[2].samples, 32);
  EXPECT_EQ(deal->shares[2].samples, 4);
  EXPECT_NEAR(deal->step_seconds, 0.14, 1e-9);
}

TEST(DealProgram, WhoWouldSlowAStepDownIsLeftOut) {
  const auto deal = deal_program(batch_of(4), {linear("quick", 0.01), linear("slow", 1)});
  ASSERT_TRUE(deal) << deal.error().message;
  EXPECT_EQ(deal->shares[0].samples, 4);
  EXPECT_EQ(deal->shares[1], RankShare{});
}

TEST(DealProgram, NoMicroBatchIsLargerThanWhatWasSeenToFit) {
  const auto deal = deal_program(batch_of(64), {device("a", {{1, 0.01}, {2, 0.011}, {4, 0.012}})});
  ASSERT_TRUE(deal) << deal.error().message;
  EXPECT_EQ(deal->shares[0], (RankShare{64, 4}));
}

TEST(DealProgram, AsManyDevicesAreUsedAsAreAskedFor) {
  const auto deal = deal_program(batch_of(4), {linear("quick", 0.01), linear("slow", 1)}, 2);
  ASSERT_TRUE(deal) << deal.error().message;
  EXPECT_EQ(deal->shares[1].samples, 1);
  EXPECT_TRUE(deal_program(batch_of(1), {linear("quick", 0.01), linear("slow", 1)}, 2));
}

TEST(DealProgram, WhereTheProgramDoesNotRunNobodyIsUsed) {
  const auto deal = deal_program(batch_of(4), {linear("quick", 0.01), DeviceProfile{}}, 2);
  ASSERT_TRUE(deal) << deal.error().message;
  EXPECT_EQ(deal->shares[0].samples, 4);
  EXPECT_EQ(deal->shares[1], RankShare{});
}

TEST(DealProgram, ALargeBatchIsDealtAsWell) {
  const auto deal = deal_program(batch_of(100'000),
                                 {linear("quick", 0.01, 100'000), linear("slow", 0.03, 100'000)});
  ASSERT_TRUE(deal) << deal.error().message;
  EXPECT_NEAR(deal->shares[1].samples, 25'000, 250);
}

TEST(DealProgram, WithoutCurvesThereIsNone) {
  EXPECT_EQ(deal_program(batch_of(4), {DeviceProfile{}}).error().code, ErrorCode::kNoPlan);
}

TEST(DealProgram, NobodyGetsFewerSamplesThanWereMeasured) {
  const DeviceProfile slow = device("slow", {{2, 0.2}, {4, 0.4}});
  const auto deal = deal_program(batch_of(8), {linear("quick", 0.02), slow});
  ASSERT_TRUE(deal) << deal.error().message;
  EXPECT_EQ(deal->shares[0].samples, 8);  // one sample of the slow one's would be worth it
  EXPECT_EQ(deal_program(batch_of(8), {linear("quick", 0.02), slow}, 2)->shares[1].samples, 2);
  EXPECT_FALSE(deal_program(batch_of(3), {slow, slow}, 2));
}

/// Against every division of the grains.
TEST(DealProgram, IsTheQuickestOfAll) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> any(0.2, 1);
  for (int round = 0; round < 200; ++round) {
    const int grain = 1 + round % 3, batch = grain * 6 - round % grain;
    std::vector<DeviceProfile> devices;
    for (int i = 0; i < 3; ++i) {
      const double per_sample = any(random);
      const double fixed = any(random);
      std::vector<std::pair<int, double>> points = {{1, fixed + per_sample},
                                                    {2, fixed + 1.5 * per_sample * any(random)},
                                                    {4, fixed + 4 * per_sample}};
      if ((round + i) % 4 == 0) points.erase(points.begin());
      devices.push_back(device(std::to_string(i), points, any(random)));
    }
    const auto seconds = [&](size_t i, int samples) {
      double least = std::numeric_limits<double>::infinity();
      const int smallest = devices[i].curve("model")->points.front().micro_batch;
      for (int size = smallest; size <= 4 && samples >= smallest; ++size)
        least = std::min(least, device_seconds(devices[i], samples, size));
      return samples == 0 ? 0 : least + devices[i].update_seconds;
    };
    double least = std::numeric_limits<double>::infinity();
    for (int a = 0; a <= 6; ++a)
      for (int b = 0; a + b <= 6; ++b)
        for (int who = 0; who < 3; ++who) {  // has the short one
          int samples[3] = {a * grain, b * grain, (6 - a - b) * grain};
          if (samples[who] == 0) continue;
          samples[who] -= 6 * grain - batch;
          least = std::min(least, std::max({seconds(0, samples[0]), seconds(1, samples[1]),
                                            seconds(2, samples[2])}));
        }
    const auto deal = deal_program(batch_of(batch, grain), devices);
    ASSERT_TRUE(deal);
    EXPECT_NEAR(deal->step_seconds, least, 1e-12) << round;
    int samples = 0;
    double longest = 0;
    for (size_t i = 0; i < 3; ++i) {
      samples += deal->shares[i].samples;
      longest = std::max(longest, seconds(i, deal->shares[i].samples));
    }
    EXPECT_EQ(samples, batch);
    EXPECT_NEAR(longest, least, 1e-12) << round;
  }
}

/// Steps of 16 samples on a quick device and a slow one.
JobSpec job_on(FleetSpec* fleet) {
  JobSpec job;
  job.train = batch_of(16);
  for (const char* type : {"quick", "slow"}) {
    DeviceSpec& device = fleet->devices.emplace_back();
    device.id = std::string(type) + "/0";
    device.host = device.type = type;
  }
  return job;
}

TEST(ProgramPlan, SaysWhatIsToBeExpected) {
  FleetSpec fleet;
  const JobSpec job = job_on(&fleet);
  const Plan plan =
      program_plan(job, fleet, {{12, 4}, {4, 4}}, {linear("quick", 0.01), linear("slow", 0.025)});
  const Prediction& prediction = plan.prediction;
  EXPECT_NEAR(prediction.step_seconds, 0.12, 1e-12);
  EXPECT_NEAR(prediction.samples_per_second, 16 / 0.12, 1e-9);
  EXPECT_NEAR(prediction.solo_sum_samples_per_second, 100 + 40, 1e-9);
  ASSERT_EQ(prediction.ranks.size(), 2u);
  EXPECT_NEAR(prediction.ranks[1].compute_seconds, 0.1, 1e-12);
  EXPECT_NEAR(prediction.ranks[1].wait_seconds, 0.02, 1e-12);
  EXPECT_EQ(plan.replicas[0].grains, 12);
  EXPECT_EQ(plan.replicas[1].micro_batch, 4);
}

TEST(ProgramPlan, IsAPlanAsAnyOther) {
  FleetSpec fleet;
  const JobSpec job = job_on(&fleet);
  for (const auto& profiles :
       {std::vector<DeviceProfile>{}, {linear("quick", 0.01), linear("slow", 0.025)}}) {
    const Plan plan = program_plan(job, fleet, {{12, 4}, {4, 4}}, profiles);
    const auto read = plan_from_json(to_json(plan));
    ASSERT_TRUE(read) << read.error().to_string();
    EXPECT_EQ(read->id, plan_id(*read));
    EXPECT_EQ(to_json(*read), to_json(plan));
  }
}

}  // namespace
}  // namespace motley
