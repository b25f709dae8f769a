// The cheapest plan, and the cheapest in time.

#include "planner/questions/objective.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "planner/plain/search.h"
#include "tests/support/planning_case.h"

namespace motley {
namespace {

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
  EXPECT_THAT(found.error().message, HasSubstr("localhost/1 (slow) has no price"));
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

RC_GTEST_PROP(ObjectiveProperties, NoSetOfTypesIsCheaperInTime, ()) {
  std::mt19937 random(*rc::gen::noShrink(rc::gen::arbitrary<uint32_t>()));
  PlanningCase problem = testing::random_case(random, 5);
  problem.job.train.steps = 100;
  for (size_t i = 0; i < problem.fleet.devices.size(); ++i) {
    problem.fleet.devices[i].type = problem.profile.devices[i].type = i % 2 == 0 ? "a" : "b";
    problem.fleet.devices[i].price_per_hour = 0.1 * *rc::gen::inRange(1, 40);
  }
  const double deadline = 0.1 * *rc::gen::inRange(1, 60);
  const auto found = cheapest(problem, deadline);
  bool any = false;
  for (const auto& types : {std::vector<std::string>{"a"}, {"b"}, {"a", "b"}}) {
    const FleetSpec part = only_types(problem.fleet, types);
    const auto plan = plan_search({problem.job, part, problem.profile});
    if (!plan || plan->prediction.step_seconds * 100 > deadline) continue;
    any = true;
    double price = 0;
    for (const RankPlacement& rank : plan->ranks)
      price += problem.fleet.find(rank.device)->price_per_hour;
    RC_ASSERT(found.has_value());
    RC_ASSERT(found->bill.cost <= price * plan->prediction.step_seconds * 100 / 3600 * (1 + 1e-9));
  }
  RC_ASSERT(found.has_value() == any);
  if (found) RC_ASSERT(found->bill.seconds <= deadline);
}

}  // namespace
}  // namespace motley
