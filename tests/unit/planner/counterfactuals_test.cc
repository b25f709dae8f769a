// What would change a plan: reported where it matters, silent where it does not.

#include "planner/questions/counterfactuals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/costs/cost_model.h"
#include "planner/plain/search.h"
#include "tests/support/planning_case.h"

namespace motley {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::PlanningCase;

constexpr int64_t kMB = 1000 * 1000;

struct Told {
  Plan plan;
  std::vector<Counterfactual> list;
  std::string text() const { return counterfactual_text(plan, list); }
  /// 0 where it is not told.
  double step(const std::string& what) const {
    for (const Counterfactual& told : list)
      if (told.what == what) return told.step_seconds;
    return 0;
  }
};

Told told_of(const PlanningCase& problem) {
  const Result<Plan> plan = plan_search(problem.request());
  EXPECT_TRUE(plan) << plan.error().to_string();
  const auto list = counterfactuals(problem.request(), *plan, plan_search);
  EXPECT_TRUE(list) << list.error().to_string();
  return {*plan, *list};
}

TEST(Counterfactuals, MemoryIsSoldInSizes) {
  EXPECT_EQ(memory_size_from(Bytes(1)), Bytes(1));
  EXPECT_EQ(memory_size_from(Bytes(23 * kMB)), Bytes(24 * kMB));
  EXPECT_EQ(memory_size_from(Bytes(24 * kMB)), Bytes(24 * kMB));
  EXPECT_EQ(memory_size_from(Bytes(24 * kMB + 1)), Bytes(32 * kMB));
  EXPECT_EQ(memory_size_from(Bytes(17'000 * kMB)), Bytes(20'000 * kMB));
  EXPECT_EQ(memory_size_from(Bytes(900 * kMB)), Bytes(1000 * kMB));
}

TEST(Counterfactuals, MemoryThatMattersIsTold) {
  // Each micro-batch costs as much as four samples, and one sample at a time is all that fits.
  PlanningCase problem(8);
  problem.add({.fixed = 0.040, .per_sample = 0.010, .largest_micro_batch = 1});
  const Told told = told_of(problem);
  EXPECT_DOUBLE_EQ(told.plan.prediction.step_seconds, 8 * 0.050);
  // The next size above the 22 MiB and headroom that two at a time need is 32 MB: 30.4 MB usable of
  // which 20 MiB are fixed, hence the table's 3. Two of 3 and one of 2.
  EXPECT_NEAR(told.step("with 32 MB on localhost/0"), 2 * 0.070 + 0.060, 1e-12);
  EXPECT_THAT(told.text(), HasSubstr("with 32 MB on localhost/0: 2.00x as fast (400 ms to 200 ms"));
}

TEST(Counterfactuals, MemoryThatDoesNotMatterIsNot) {
  PlanningCase problem(8);
  problem.add({.fixed = 0, .per_sample = 0.010, .largest_micro_batch = 1});
  const Told told = told_of(problem);
  EXPECT_THAT(told.list, IsEmpty());
  EXPECT_THAT(told.text(), Not(HasSubstr("with ")));
}

TEST(Counterfactuals, ADeviceTooSmallToBeMeasuredWholeIsJudgedByItsLayers) {
  PlanningCase problem(8);
  problem.add({.type = "big", .fixed = 0, .per_sample = 0.010});
  problem.add({.type = "small", .largest_micro_batch = 0});
  DeviceProfile& small = problem.profile.devices.back();
  const auto layer = [](const std::string& name, double seconds) {
    LayerCurve curve;
    curve.layer = name;
    for (const int size : {1, 2, 4}) curve.points.push_back({size, seconds * size, 0, 3});
    curve.fit = fit_curve(curve.points);
    return curve;
  };
  small.curves = {layer("embedding", 0.001), layer("block", 0.008), layer("head", 0.001)};
  const Told told = told_of(problem);
  EXPECT_EQ(told.plan.world_size(), 1);
  EXPECT_NEAR(told.step("with 32 MB on localhost/1"), 0.040, 1e-12);
  small.curves.clear();
  EXPECT_THAT(told_of(problem).text(), Not(HasSubstr("with "))) << "how fast it is nobody knows";
}

TEST(Counterfactuals, OfLikeDevicesOneIsRaisedAndAllOfThem) {
  PlanningCase problem(8);
  for (int i = 0; i < 2; ++i)
    problem.add({.fixed = 0.040, .per_sample = 0.010, .largest_micro_batch = 1});
  const Told told = told_of(problem);
  EXPECT_DOUBLE_EQ(told.plan.prediction.step_seconds, 4 * 0.050);
  // One: 6 : 2 in twice 70 and twice 50 ms; both: 4 samples in 70 + 50 ms or twice 60 ms.
  EXPECT_NEAR(told.step("with 32 MB on localhost/0"), 0.140, 1e-12);
  EXPECT_NEAR(told.step("with 32 MB on each of 2 card"), 0.120, 1e-12);
  EXPECT_EQ(told.list.front().what, "with 32 MB on each of 2 card") << "the larger effect first";
}

TEST(Counterfactuals, MemoryForSumsOverMoreRanksCounts) {
  PlanningCase problem(16);
  problem.job.model = {"gpt", 2, 2, 32, 16, 256};
  problem.add({.type = "narrow", .fixed = 0.008, .per_sample = 0.004});
  problem.add({.type = "slow", .fixed = 0, .per_sample = 0.012});
  DeviceProfile& narrow = problem.profile.devices.front();
  narrow.memory_limit = Bytes(1'930'000);
  for (MemoryPoint& point : narrow.memory)
    point.fixed = Bytes(710'000), point.activations = Bytes(70'000 * point.micro_batch);
  const Told told = told_of(problem);
  // Micro-batches of 8 fit, but not together with what sums over two ranks take.
  ASSERT_EQ(told.plan.world_size(), 1) << "the case needs sums that do not fit";
  EXPECT_NEAR(told.plan.prediction.step_seconds, 0.080, 1e-12);
  EXPECT_NEAR(told.step("with 3 MB on localhost/0"), 0.056, 1e-12) << told.text();  // 12 : 4
}

TEST(Counterfactuals, ATypeThatHelpsIsMissedWhenLeftOut) {
  PlanningCase problem(12);
  problem.add({.type = "fast", .fixed = 0, .per_sample = 0.010})
      .add({.type = "slow", .fixed = 0, .per_sample = 0.020});
  const Told told = told_of(problem);
  EXPECT_NEAR(told.step("leaving out the slow"), 0.120, 1e-12);
  EXPECT_NEAR(told.step("leaving out the fast"), 0.240, 1e-12);
  EXPECT_THAT(told.text(), HasSubstr("leaving out the slow: 33 % slower (80 ms to 120 ms/step)"));
}

TEST(Counterfactuals, ATypeThatIsNotUsedIsNotMissed) {
  PlanningCase problem(8);
  problem.add({.per_sample = 0.010}).add({.type = "old", .per_sample = 0.500});
  EXPECT_THAT(told_of(problem).text(), Not(HasSubstr("leaving out the old")));
}

TEST(Counterfactuals, WhereAllOfItDoesNotHelpPartsAreNotTried) {
  PlanningCase problem(12);
  for (const char* type : {"one", "other"})
    for (int i = 0; i < 3; ++i)
      problem.add({.host = type, .type = type, .fixed = 0, .largest_micro_batch = 1});
  problem.add_link("one", "other", 0, 1e9);
  const Plan plan = *plan_search(problem.request());
  int searches = 0;
  const auto counted = [&](const PlanRequest& request) {
    ++searches;
    return plan_search(request);
  };
  ASSERT_TRUE(counterfactuals(problem.request(), plan, counted));
  EXPECT_EQ(searches, 1 + 2 + 1) << "all memory, a type each, the link";
}

/// Whatever is found with more, or not found: what there is stays possible.
TEST(Counterfactuals, MoreIsNeverSlower) {
  PlanningCase problem(12);
  problem.add({.fixed = 0.040, .per_sample = 0.010, .largest_micro_batch = 1});
  const Plan plan = *plan_search(problem.request());
  for (const double step : {0.0, 1e9}) {
    const auto worse = [&](const PlanRequest&) -> Result<Plan> {
      if (step == 0) return fail(ErrorCode::kNoPlan, "none was found");
      Plan other = plan;
      other.prediction.step_seconds = step;
      return other;
    };
    EXPECT_THAT(*counterfactuals(problem.request(), plan, worse), IsEmpty());
  }
}

TEST(Counterfactuals, WhatLostNeedsNoMore) {
  PlanningCase problem(8);
  problem.add({.fixed = 0.040, .per_sample = 0.010, .largest_micro_batch = 1});
  Plan plan = *plan_search(problem.request());
  ASSERT_THAT(*counterfactuals(problem.request(), plan, plan_search), Not(IsEmpty()));
  plan.search.rejected.push_back({"another", "hardly quicker", 2 * 0.070 + 0.060 - 0.001});
  EXPECT_THAT(*counterfactuals(problem.request(), plan, plan_search), IsEmpty());
}

TEST(Counterfactuals, ATypeThatIsPinnedIsNotLeftOut) {
  PlanningCase problem(12);
  problem.add({.type = "fast", .per_sample = 0.010}).add({.type = "slow", .per_sample = 0.020});
  problem.job.pin.replicas.emplace_back().stages.emplace_back().devices = {
      problem.fleet.devices[0].id};
  const Told told = told_of(problem);
  EXPECT_THAT(told.text(), Not(HasSubstr("leaving out the fast")));
  EXPECT_THAT(told.text(), HasSubstr("leaving out the slow"));
}

TEST(Counterfactuals, WithoutTheOnlyTypeThatFitsThereIsNoPlan) {
  PlanningCase problem(8);
  problem.add({.type = "big", .per_sample = 0.010}).add({.type = "small", .per_sample = 0.010});
  problem.profile.devices.back().memory_limit = Bytes(kMB);
  EXPECT_THAT(told_of(problem).text(), HasSubstr("leaving out the big: no plan fits\n"));
}

/// Two hosts; the reduction of the gradients takes as long over their link as the computing.
PlanningCase two_hosts() {
  PlanningCase problem(12);
  problem.add({.host = "a", .fixed = 0, .per_sample = 0.010})
      .add({.host = "b", .fixed = 0, .per_sample = 0.010});
  const auto bytes = static_cast<double>(gradient_bytes(problem.job).value());
  problem.add_link("a", "b", 0, bytes / 0.030);  // of two ranks each sends it all once
  return problem;
}

TEST(Counterfactuals, ASlowLinkIsTold) {
  const Told told = told_of(two_hosts());
  EXPECT_NEAR(told.plan.prediction.step_seconds, 0.060 + 0.030, 1e-9);
  EXPECT_NEAR(told.step("with a link twice as fast between a and b"), 0.060 + 0.015, 1e-9);
}

TEST(Counterfactuals, WhatWasMeasuredOverALinkGoesWithIt) {
  PlanningCase problem = two_hosts();
  problem.add_reduction(2, 0.040, {"a", "b"});  // a third more than the link alone explains
  const Told told = told_of(problem);
  EXPECT_NEAR(told.plan.prediction.step_seconds, 0.060 + 0.040, 1e-9);
  EXPECT_NEAR(told.step("with a link twice as fast between a and b"), 0.060 + 0.020, 1e-9);
}

TEST(Counterfactuals, ASlowLinkWithinAHostIsTold) {
  PlanningCase problem(12);
  for (int i = 0; i < 2; ++i) problem.add({.host = "a", .fixed = 0, .per_sample = 0.010});
  const auto bytes = static_cast<double>(gradient_bytes(problem.job).value());
  problem.add_link("a", "a", 0, bytes / 0.030);
  const Told told = told_of(problem);
  EXPECT_NEAR(told.plan.prediction.step_seconds, 0.060 + 0.030, 1e-9);
  EXPECT_NEAR(told.step("with a link twice as fast within a"), 0.060 + 0.015, 1e-9);
  problem.add_reduction(2, 0.040, {"a"});  // a third more than the link alone explains
  EXPECT_NEAR(told_of(problem).step("with a link twice as fast within a"), 0.060 + 0.020, 1e-9);
}

TEST(Counterfactuals, OneOfSeveralSlowLinksDoesNotHelpButAllDo) {
  PlanningCase problem(12);
  for (const char* host : {"a", "b", "c"})
    problem.add({.host = host, .fixed = 0, .per_sample = 0.010});
  const auto bytes = static_cast<double>(gradient_bytes(problem.job).value());
  for (const auto& [from, to] : {std::pair("a", "b"), {"b", "c"}, {"a", "c"}})
    problem.add_link(from, to, 0, bytes / 0.006);
  const Told told = told_of(problem);
  EXPECT_NEAR(told.plan.prediction.step_seconds, 0.040 + 0.008, 1e-9);  // 4/3 of the bytes
  EXPECT_NEAR(told.step("with all links between hosts twice as fast"), 0.040 + 0.004, 1e-9);
  EXPECT_THAT(told.text(), Not(HasSubstr("a link twice as fast")));
}

TEST(Counterfactuals, NoMoreThanSixAreToldAndTheLargestFirst) {
  PlanningCase problem(64);
  for (int i = 0; i < 9; ++i)
    problem.add({.type = "type" + std::to_string(i), .fixed = 0, .per_sample = 0.010 + 0.001 * i});
  const Told told = told_of(problem);
  ASSERT_EQ(told.list.size(), kMostCounterfactuals);
  const double step = told.plan.prediction.step_seconds;
  for (size_t i = 1; i < told.list.size(); ++i)
    EXPECT_GE(std::abs(told.list[i - 1].step_seconds - step),
              std::abs(told.list[i].step_seconds - step));
}

TEST(Counterfactuals, ASearchThatFailsIsNoWantOfAPlan) {
  const PlanningCase problem = two_hosts();
  const Plan plan = *plan_search(problem.request());
  const auto told = counterfactuals(problem.request(), plan, [](const PlanRequest&) {
    return Result<Plan>(fail(ErrorCode::kBrokenInstall, "nobody counts"));
  });
  ASSERT_FALSE(told);
  EXPECT_EQ(told.error().code, ErrorCode::kBrokenInstall);
}

TEST(Counterfactuals, ThePlanItselfStaysAsItWas) {
  const Told told = told_of(two_hosts());
  EXPECT_EQ(told.plan.id, plan_id(told.plan));
  EXPECT_EQ(plan_search(two_hosts().request())->id, told.plan.id);
}

}  // namespace
}  // namespace motley
