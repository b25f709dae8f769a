// The cheapest plan, and the cheapest in time.

#include "planner/questions/objective.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <cstdint>
#include <optional>

#include "planner/pipelines/pipeline_search.h"
#include "planner/plain/search.h"
#include "planner/search_forms.h"
#include "tests/support/layered_case.h"
#include "tests/support/planning_case.h"

namespace motley {
namespace {

using testing::add_layered;
using ::testing::HasSubstr;
using testing::PlanningCase;

/// 1000 steps: together 80 s at 3.5, fast alone 120 s at 3, slow alone 240 s at 0.5 an hour.
PlanningCase priced() {
  PlanningCase problem(12);
  problem.add({.type = "fast", .fixed = 0, .per_sample = 0.010})
      .add({.type = "slow", .fixed = 0, .per_sample = 0.020});
  problem.fleet.devices[0].price_per_hour = 3;
  problem.fleet.devices[1].price_per_hour = 0.5;
  problem.job.train.steps = 1000;
  return problem;
}

Result<CheapestPlan> cheapest(const PlanningCase& problem, std::optional<double> deadline = {}) {
  return cheapest_plan(problem.request(), deadline, plan_search);
}

TEST(Objective, WithoutADeadlineTheCheapest) {
  const auto found = cheapest(priced());
  ASSERT_TRUE(found) << found.error().to_string();
  ASSERT_EQ(found->plan.world_size(), 1);
  EXPECT_EQ(found->plan.ranks[0].type, "slow");
  EXPECT_NEAR(found->bill.seconds, 240, 1e-9);
  EXPECT_NEAR(found->bill.cost, 240 * 0.5 / 3600, 1e-12);
  EXPECT_NEAR(found->quickest.seconds, 80, 1e-9);
  ASSERT_EQ(found->plan.left_out.size(), 1U);
  EXPECT_EQ(found->plan.left_out[0].device, "localhost/0");
  EXPECT_EQ(found->plan.id, plan_id(found->plan));
}

TEST(Objective, OfThoseInTimeTheCheapest) {
  // Both others end in time; together they cost 0.078, fast alone 0.1.
  const auto found = cheapest(priced(), 130);
  ASSERT_TRUE(found) << found.error().to_string();
  EXPECT_EQ(found->plan.world_size(), 2);
  EXPECT_NEAR(found->bill.cost, 80 * 3.5 / 3600, 1e-12);
}

TEST(Objective, WhatCannotEndInTimeIsNoBound) {
  const auto found = cheapest(priced(), 130);
  ASSERT_TRUE(found) << found.error().to_string();
  EXPECT_NEAR(found->plan.search.gap(), 0, 1e-9) << "slow alone costs half as much, too late";
  ASSERT_FALSE(found->plan.search.rejected.empty());
  EXPECT_THAT(found->plan.search.rejected.back().why, HasSubstr("not"));
}

TEST(Objective, NoneInTime) {
  const auto found = cheapest(priced(), 79);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, ErrorCode::kNoPlan);
  EXPECT_THAT(found.error().message,
              HasSubstr("1000 steps take 1m20s at best, longer than the deadline of 1m19s"));
}

TEST(Objective, WithoutAPriceNothingCanBeSaid) {
  PlanningCase problem = priced();
  problem.fleet.devices[1].price_per_hour = 0;
  const auto found = cheapest(problem);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, ErrorCode::kInvalidSpec);
  EXPECT_THAT(found.error().message, HasSubstr("localhost/1 (slow) has no price above 0"));
}

TEST(Objective, SmallCostsAreToldApart) {
  EXPECT_EQ(cost_text(12.4), "12.40");
  EXPECT_EQ(cost_text(0.01964), "0.0196");
}

TEST(Objective, ADeadlineOfTheQuickestPlan) {
  const PlanningCase problem = priced();
  const Plan plan = *plan_search(problem.request());
  EXPECT_TRUE(check_deadline(plan, 1000, 81));
  EXPECT_TRUE(check_deadline(plan, 1000, std::nullopt));
  EXPECT_EQ(check_deadline(plan, 1000, 79).error().code, ErrorCode::kNoPlan);
}

TEST(Objective, FewerDevicesOfATypeWhereSumsCostMoreThanTheyBring) {
  PlanningCase problem(64);
  for (int i = 0; i < 4; ++i) problem.add({.fixed = 0, .per_sample = 0.010});
  for (const int ranks : {2, 3, 4}) problem.add_reduction(ranks, 0.2);
  for (DeviceSpec& device : problem.fleet.devices) device.price_per_hour = 1;
  problem.job.train.steps = 1000;
  const auto found = cheapest(problem);
  ASSERT_TRUE(found) << found.error().to_string();
  EXPECT_EQ(found->plan.world_size(), 1);
  EXPECT_EQ(found->plan.left_out.size(), 3U);
  EXPECT_NEAR(found->bill.cost, 640.0 / 3600, 1e-9);
  EXPECT_EQ(found->plan.search.cost, found->bill.cost);
  EXPECT_NEAR(found->plan.search.gap(), 0, 1e-9) << "all sets were planned";
  // As many as the deadline needs.
  EXPECT_EQ(cheapest(problem, 600)->plan.world_size(), 2);
  EXPECT_EQ(cheapest(problem, 425)->plan.world_size(), 3);
  EXPECT_EQ(cheapest(problem, 361)->plan.world_size(), 4);
}

TEST(Objective, OfThoseThatCostAsMuchTheQuickest) {
  PlanningCase problem(64);
  for (int i = 0; i < 2; ++i) problem.add({.fixed = 0, .per_sample = 0.010, .update = 0.001});
  for (DeviceSpec& device : problem.fleet.devices) device.price_per_hour = 1;
  problem.job.train.steps = 1000;
  const auto found = cheapest(problem);
  ASSERT_TRUE(found) << found.error().to_string();
  EXPECT_EQ(found->plan.world_size(), 2) << "for an update more in 640 ms";
  EXPECT_THAT(found->plan.search.rejected.back().why, HasSubstr("hardly cheaper"));
}

/// Four alike, of which each costs a little more than the one before.
PlanningCase four_alike() {
  PlanningCase problem(64);
  for (int i = 0; i < 4; ++i) problem.add({.fixed = 0, .per_sample = 0.010, .update = 0.05});
  for (size_t i = 0; i < 4; ++i)
    problem.fleet.devices[i].price_per_hour = 1 + 0.01 * static_cast<double>(i);
  problem.job.train.steps = 1000;
  return problem;
}

TEST(Objective, TheDevicesAreThoseThatTheJobAdmits) {
  PlanningCase problem = four_alike();
  problem.job.devices.limits = {{"card", 2}};
  std::swap(problem.fleet.devices[0].price_per_hour, problem.fleet.devices[1].price_per_hour);
  const auto found = cheapest(problem);
  ASSERT_TRUE(found) << found.error().to_string();
  ASSERT_EQ(found->plan.world_size(), 1);
  EXPECT_EQ(found->plan.ranks[0].device, problem.fleet.devices[1].id);
}

TEST(Objective, OfDevicesAlikeThoseThatArePinnedAreMeant) {
  PlanningCase problem = four_alike();
  problem.job.pin.replicas.emplace_back().stages.emplace_back().devices = {
      problem.fleet.devices[3].id};
  const SearchPlan with_pinned = [&](const PlanRequest& request) -> Result<Plan> {
    if (request.fleet.find(problem.fleet.devices[3].id) == nullptr)
      return fail(ErrorCode::kNoPlan, "the pinned device is not there");
    return plan_search(request);
  };
  const auto found = cheapest_plan(problem.request(), {}, with_pinned);
  ASSERT_TRUE(found) << found.error().to_string();
  ASSERT_EQ(found->plan.world_size(), 1);
  EXPECT_EQ(found->plan.ranks[0].device, problem.fleet.devices[3].id);
}

TEST(Objective, NoPlanOfLayersCostsLessThanItsBound) {
  std::mt19937 random(20261129);
  const auto draw = [&](int low, int high) {
    return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
  };
  int planned = 0;
  for (int i = 0; i < 16; ++i) {
    SCOPED_TRACE("case " + std::to_string(i));
    PlanningCase problem(draw(1, 6));
    problem.job.model = {"gpt", 4, 4, 128, 64, 256};
    for (int device = draw(1, 3); device > 0; --device) {
      add_layered({.host = draw(0, 1) == 0 ? "one" : "other",
                   .type = std::string(1, static_cast<char>('a' + draw(0, 2))),
                   .per_sample = 0.001 * draw(2, 20),
                   .fixed = 0.0001 * draw(0, 20),
                   .update = 0.001 * draw(1, 30),
                   .host_update = 0.001 * draw(0, 20),
                   .memory_mib = draw(6, 60),
                   .recomputing = draw(0, 1) == 0,
                   .sharing = draw(0, 1) == 0},
                  &problem);
      problem.fleet.devices.back().price_per_hour = 0.1 * draw(1, 40);
      if (draw(0, 1) == 0) problem.fleet.devices.back().kind = DeviceKind::kCuda;
    }
    const MemoryCounter counter = testing::layer_bytes_counter(problem);
    const SearchPlan search = [&](const PlanRequest& asked) {
      return search_all_forms(asked, counter);
    };
    const Result<CheapestPlan> found = cheapest_plan(problem.request(), {}, search);
    const Result<double> least = least_cost_of_pipelines(problem.request());
    ASSERT_TRUE(least) << least.error().to_string();
    if (!found) continue;
    ++planned;
    EXPECT_LE(*least * static_cast<double>(problem.job.train.steps), found->bill.cost * (1 + 1e-9));
  }
  EXPECT_GT(planned, 8);
}

TEST(Objective, OfManyDevicesAsFewAsAreCheapest) {
  PlanningCase problem(960);
  for (int i = 0; i < 48; ++i)
    problem.add({.host = "host" + std::to_string(i / 8), .type = "a", .fixed = 0, .update = 0.1});
  for (int i = 0; i < 16; ++i)
    problem.add({.host = "old", .type = "b", .fixed = 0, .per_sample = 0.030, .update = 0.1});
  for (DeviceSpec& device : problem.fleet.devices) device.price_per_hour = 1;
  problem.job.train.steps = 1000;
  const auto found = cheapest(problem);
  ASSERT_TRUE(found) << found.error().to_string();
  EXPECT_EQ(found->plan.world_size(), 1);
  EXPECT_EQ(found->plan.ranks[0].type, "a");
  // 960 samples of 10 ms and an update of 100 ms in 590 ms: 20 devices.
  const auto in_time = cheapest(problem, 590);
  ASSERT_TRUE(in_time) << in_time.error().to_string();
  EXPECT_EQ(in_time->plan.world_size(), 20);
}

/// Of all plans of any devices that end in time: the quickest of each set of devices.
std::optional<double> least_cost(const PlanningCase& problem, double deadline) {
  std::optional<double> least;
  const size_t devices = problem.fleet.devices.size();
  for (uint32_t set = 1; set < uint32_t{1} << devices; ++set) {
    FleetSpec part = problem.fleet;
    part.devices.clear();
    for (size_t i = 0; i < devices; ++i)
      if ((set >> i & 1) != 0) part.devices.push_back(problem.fleet.devices[i]);
    const auto plan = plan_search({problem.job, part, problem.profile});
    if (!plan) continue;
    double price = 0;
    for (const RankPlacement& rank : plan->ranks)
      price += problem.fleet.find(rank.device)->price_per_hour;
    const double seconds = plan->prediction.step_seconds * problem.job.train.steps;
    if (seconds <= deadline) least = std::min(least.value_or(INFINITY), price * seconds / 3600);
  }
  return least;
}

RC_GTEST_PROP(ObjectiveProperties, NoSetOfDevicesIsCheaperInTime, ()) {
  std::mt19937 random(*rc::gen::noShrink(rc::gen::arbitrary<uint32_t>()));
  PlanningCase problem = testing::random_case(random, 5);
  problem.job.train.steps = 100;
  for (DeviceSpec& device : problem.fleet.devices)
    device.price_per_hour = 0.1 * *rc::gen::inRange(1, 40);
  const double deadline = 0.1 * *rc::gen::inRange(1, 60);
  const auto found = cheapest(problem, deadline);
  const auto least = least_cost(problem, deadline);
  RC_ASSERT(found.has_value() == least.has_value());
  if (!found) return;
  RC_ASSERT(found->bill.seconds <= deadline);
  RC_ASSERT(found->bill.cost <= *least * 1.005 * (1 + 1e-9));
  RC_ASSERT(found->plan.search.lower_bound_cost <= *least * (1 + 1e-9));
}

}  // namespace
}  // namespace motley
