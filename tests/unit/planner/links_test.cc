#include "planner/costs/links.h"

#include <gtest/gtest.h>

#include "planner/costs/cost_model.h"
#include "planner/plain/search.h"
#include "tests/support/planning_case.h"

namespace motley {
namespace {

using testing::PlanningCase;

/// Two devices on hosts joined by a link of so many bytes a second.
PlanningCase joined_by(double bytes_per_second, CodecKind codec) {
  PlanningCase problem(12);
  problem.add({.host = "b", .fixed = 0})
      .add({.host = "a", .fixed = 0})
      .add_link("b", "a", 1e-4, bytes_per_second);
  problem.job.parallel.compress.kind = codec;
  return problem;
}

TEST(Links, AreInThePlanInOneOrder) {
  PlanningCase problem = joined_by(1e9, CodecKind::kOff);
  problem.add_link("b", "elsewhere", 1e-4, 1e6).add_link("a", "a", 0, 1e10);
  const Plan plan = *plan_search(problem.request());
  ASSERT_EQ(plan.links.size(), 1U);
  EXPECT_EQ(plan.links[0], (LinkProfile{{"a", "b"}, 1e-4, 1e9}));
  EXPECT_FALSE(plan.compression.on());
}

TEST(Links, AreSortedByHosts) {
  PlanningCase problem(12);
  for (const char* host : {"b", "c", "a"}) problem.add({.host = host, .fixed = 0});
  problem.add_link("c", "b", 1e-4, 3e9).add_link("c", "a", 1e-4, 2e9).add_link("a", "b", 1e-4, 1e9);
  const Plan plan = *plan_search(problem.request());
  EXPECT_EQ(plan.links,
            (std::vector<LinkProfile>{
                {{"a", "b"}, 1e-4, 1e9}, {{"a", "c"}, 1e-4, 2e9}, {{"b", "c"}, 1e-4, 3e9}}));
}

/// A device each on "a" and "b", which are near, and on "c", which is far from both.
PlanningCase one_on_each_host() {
  PlanningCase problem(12);
  for (const char* host : {"a", "b", "c"}) problem.add({.host = host, .fixed = 0});
  problem.add_link("a", "b", 1e-4, 1e9).add_link("a", "c", 1e-4, 1e5).add_link("b", "c", 1e-4, 1e5);
  return problem;
}

/// Of a host with a single device nobody measures a link within.
TEST(Links, HostsWithOneDeviceSumOverTheLinksBetweenThem) {
  const PlanningCase problem = one_on_each_host();
  const Bytes bytes(4'000'000);
  const ReductionModel reduction(problem.profile, bytes);
  EXPECT_DOUBLE_EQ(reduction.seconds(2, {"a", "b"}), 2 * (1e-4 + 2e6 / 1e9));
  EXPECT_DOUBLE_EQ(reduction.seconds(3, {"a", "b", "c"}), 4 * (1e-4 + 4e6 / 3 / 1e5));
}

TEST(Links, AFarHostMakesNoPlanSlower) {
  const PlanningCase all = one_on_each_host();
  PlanningCase near = all;
  near.fleet.devices.pop_back();
  near.profile.devices.pop_back();
  const Plan with = *plan_search(all.request()), without = *plan_search(near.request());
  EXPECT_EQ(without.world_size(), 2);
  EXPECT_DOUBLE_EQ(with.prediction.step_seconds, without.prediction.step_seconds);
}

TEST(Links, AutoCompressesWhatIsSlow) {
  const Plan slow = *plan_search(joined_by(25e6, CodecKind::kAuto).request());
  EXPECT_EQ(slow.compression.codec.kind, kCodecOfSlowLinks);
  EXPECT_EQ(slow.compression.below_bytes_per_second, kSlowLink);
  EXPECT_FALSE(plan_search(joined_by(1e9, CodecKind::kAuto).request())->compression.on());
  PlanningCase exact = joined_by(25e6, CodecKind::kAuto);
  exact.job.train.numerics = Numerics::kExact;
  exact.job.train.grain = 2;
  EXPECT_FALSE(plan_search(exact.request())->compression.on());
}

TEST(Links, WhatTheJobNamesIsDoneOnAllOfThem) {
  const Plan plan = *plan_search(joined_by(1e9, CodecKind::kBf16).request());
  EXPECT_EQ(plan.compression, (LinkCompression{.codec = {.kind = CodecKind::kBf16}}));
}

TEST(Links, FewerBytesAreCounted) {
  const ModelSpec model{
      .type = "gpt", .layers = 2, .heads = 2, .width = 64, .context = 32, .vocab = 256};
  EXPECT_EQ(shortened_links({}, model).below_bytes_per_second, 0);
  const ShortenedLinks bf16 = shortened_links({.codec = {.kind = CodecKind::kBf16}}, model);
  EXPECT_DOUBLE_EQ(bf16.bytes_ratio, 0.5);
  const CodecSpec factors{.kind = CodecKind::kPowerSgd, .rank = 2, .values = CodecValues::kBf16};
  int64_t sent = 0;
  for (const LogicalTensor& tensor : logical_tensors(model)) {
    const auto matrix = matrix_for_power_sgd(tensor.shape, 2);
    sent += matrix ? power_sgd_bytes(factors, *matrix) : tensor.elements() * 4;
  }
  const ShortenedLinks shortened =
      shortened_links({.codec = factors, .below_bytes_per_second = 1e6}, model);
  EXPECT_EQ(shortened.below_bytes_per_second, 1e6);
  EXPECT_DOUBLE_EQ(shortened.bytes_ratio,
                   static_cast<double>(sent) / static_cast<double>(4 * parameter_count(model)));
  EXPECT_LT(shortened.bytes_ratio, 0.1);
}

TEST(Links, CompressionIsPredictedToHelp) {
  const PlanningCase off = joined_by(1e3, CodecKind::kOff);
  const PlanningCase on = joined_by(1e3, CodecKind::kInt8);
  JobSpec two = off.job;
  two.devices.count = CountRange{2, 2};
  JobSpec two_compressed = on.job;
  two_compressed.devices.count = CountRange{2, 2};
  const Plan plain = *plan_search({two, off.fleet, off.profile});
  const Plan compressed = *plan_search({two_compressed, on.fleet, on.profile});
  EXPECT_LT(compressed.prediction.communication_seconds,
            0.3 * plain.prediction.communication_seconds);
}

/// Two devices each on hosts "a" and "b", and one on "c", which is far from both.
PlanningCase far_apart(int across) {
  PlanningCase problem(30);
  for (const char* host : {"a", "a", "b", "b", "c"}) problem.add({.host = host, .fixed = 0});
  problem.add_link("a", "a", 0, 1e10)
      .add_link("b", "b", 0, 1e10)
      .add_link("a", "b", 1e-4, 1e9)
      .add_link("a", "c", 1e-4, 1e5)
      .add_link("b", "c", 1e-4, 1e5);
  problem.job.devices.count = CountRange{5, 5};
  problem.job.parallel.sync.across = across;
  return problem;
}

TEST(Links, SlowOnesPartTheGroupsThatAverage) {
  const Plan plan = *plan_search(far_apart(8).request());
  EXPECT_EQ(plan.sync, (SyncPlan{8, {{"a", "b"}, {"c"}}}));
  EXPECT_EQ(plan_search(far_apart(1).request())->sync, SyncPlan{});
  PlanningCase with_auto = far_apart(8);
  with_auto.job.parallel.compress.kind = CodecKind::kAuto;
  EXPECT_FALSE(plan_search(with_auto.request())->compression.on());
}

TEST(Links, CarryWeightsAndTwoMomentsEverySoManySteps) {
  const auto communication = [](int across) {
    return plan_search(far_apart(across).request())->prediction.communication_seconds;
  };
  EXPECT_DOUBLE_EQ(communication(6), communication(1) * 3 / 6);
  EXPECT_DOUBLE_EQ(communication(24), communication(1) * 3 / 24);
  const double within = communication(1'000'000);  // no less than what passes in each step
  EXPECT_GT(within, 0);
  EXPECT_LT(within, communication(1) / 10);
}

TEST(Links, AHostOfOneRankHasNothingToSumBetweenAverages) {
  PlanningCase problem = joined_by(1e5, CodecKind::kOff);
  problem.job.devices.count = CountRange{2, 2};
  const double every_step = plan_search(problem.request())->prediction.communication_seconds;
  problem.job.parallel.sync.across = 300;
  EXPECT_DOUBLE_EQ(plan_search(problem.request())->prediction.communication_seconds,
                   every_step * 3 / 300);
}

}  // namespace
}  // namespace motley
