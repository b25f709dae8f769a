// Planning again, from the plan there was, against planning from nothing.

#include "planner/plain/plan_again.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>

#include "planner/plain/search.h"
#include "tests/support/planning_case.h"

namespace motley {
namespace {

using testing::PlanningCase;

Result<Plan> again(const PlanningCase& problem, const Plan& previous) {
  PlanRequest request = problem.request();
  request.previous = &previous;
  return plan_search(request);
}

void lose(const std::string& device, PlanningCase* problem) {
  std::erase_if(problem->fleet.devices, [&](const DeviceSpec& spec) { return spec.id == device; });
}

bool uses(const Plan& plan, const std::string& device) {
  return std::any_of(plan.ranks.begin(), plan.ranks.end(),
                     [&](const RankPlacement& rank) { return rank.device == device; });
}

std::string text_of(const Plan& plan) { return to_json(plan).dump(); }

/// A dozen devices on four hosts, each a little unlike all others.
PlanningCase dozen() {
  PlanningCase problem(96);
  for (int i = 0; i < 12; ++i)
    problem.add({.host = "host" + std::to_string(i / 3),
                 .type = i % 2 == 0 ? "quick" : "slow",
                 .per_sample = (i % 2 == 0 ? 0.010 : 0.025) + 0.0001 * i,
                 .update = 0.001});
  for (int a = 0; a < 4; ++a)
    for (int b = a; b < 4; ++b)
      problem.add_link("host" + std::to_string(a), "host" + std::to_string(b), 1e-5, 1e9);
  return problem;
}

/// After the loss of up to `most` of the devices that the plan of a random fleet uses: planned
/// again and from nothing, for both to be compared.
template <class Compare>
int for_random_losses(int cases, size_t most, Compare compare) {
  int compared = 0;
  for (int i = 0; compared < cases && i < 10 * cases; ++i) {
    std::mt19937 random(static_cast<uint32_t>(i));
    PlanningCase problem = testing::random_case(random, 9);
    const Result<Plan> before = plan_search(problem.request());
    if (!before) continue;
    const size_t losses = 1 + random() % most;
    std::vector<std::string> lost;
    for (size_t loss = 0; loss < losses && loss < before->ranks.size(); ++loss) {
      lost.push_back(before->ranks[loss].device);
      lose(lost.back(), &problem);
    }
    if (problem.fleet.devices.empty()) continue;
    compare(problem, *before, lost);
    ++compared;
  }
  return compared;
}

TEST(PlanAgain, IsNeverFurtherFromTheBestPlanThanItSays) {
  int other_than_best = 0;
  const auto compare = [&](const PlanningCase& problem, const Plan& before,
                           const std::vector<std::string>& lost) {
    const Result<Plan> best = plan_search(problem.request());
    const Result<Plan> plan = again(problem, before);
    ASSERT_EQ(plan.has_value(), best.has_value());
    if (!plan) return;
    for (const std::string& device : lost) EXPECT_FALSE(uses(*plan, device));
    const double least = best->prediction.step_seconds;
    EXPECT_GE(plan->prediction.step_seconds, least);
    EXPECT_LE(plan->prediction.step_seconds, least * (1 + kEnoughAgain));
    EXPECT_LE(plan->search.lower_bound_step_seconds, least);
    EXPECT_EQ(plan->search.gap(),
              plan->search.step_seconds / plan->search.lower_bound_step_seconds - 1);
    if (plan->prediction.step_seconds > least) ++other_than_best;
  };
  EXPECT_EQ(for_random_losses(100, 1, compare), 100);
  EXPECT_EQ(for_random_losses(100, 4, compare), 100);
  RecordProperty("other_than_best", other_than_best);
}

TEST(PlanAgain, SaysWhereItBegan) {
  PlanningCase problem = dozen();
  const Result<Plan> before = plan_search(problem.request());
  ASSERT_TRUE(before);
  lose(before->ranks[0].device, &problem);
  const Result<Plan> plan = again(problem, *before);
  ASSERT_TRUE(plan);
  EXPECT_NE(plan->search.space.find("from the previous plan"), std::string::npos);
  EXPECT_LE(plan->search.gap(), kEnoughAgain);
  EXPECT_GT(plan->search.lower_bound_step_seconds, 0);
  EXPECT_EQ(plan->grain, before->grain);
}

TEST(PlanAgain, IsAFunctionOfWhatItIsAsked) {
  PlanningCase problem = dozen();
  const Result<Plan> before = plan_search(problem.request());
  ASSERT_TRUE(before);
  lose(before->ranks[1].device, &problem);
  const Result<Plan> one = again(problem, *before);
  std::reverse(problem.profile.devices.begin(), problem.profile.devices.end());
  const Result<Plan> other = again(problem, *before);
  ASSERT_TRUE(one && other);
  EXPECT_EQ(text_of(*one), text_of(*other));
}

TEST(PlanAgain, UsesADeviceThatWasAdded) {
  const PlanningCase all = dozen();
  PlanningCase fewer = all;
  lose("host0/0", &fewer);
  const Result<Plan> before = plan_search(fewer.request());
  ASSERT_TRUE(before);
  const Result<Plan> plan = again(all, *before);
  const Result<Plan> best = plan_search(all.request());
  ASSERT_TRUE(plan && best);
  EXPECT_TRUE(uses(*plan, "host0/0"));
  EXPECT_LE(plan->prediction.step_seconds, best->prediction.step_seconds * (1 + kEnoughAgain));
}

TEST(PlanAgain, KeepsThePlanWhereNothingHasChanged) {
  const PlanningCase problem = dozen();
  const Result<Plan> before = plan_search(problem.request());
  ASSERT_TRUE(before);
  const Result<Plan> plan = again(problem, *before);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->id, before->id);
}

TEST(PlanAgain, SearchesFromNothingWhereThePlanIsForAnotherBatch) {
  PlanningCase problem = dozen();
  const Result<Plan> before = plan_search(problem.request());
  ASSERT_TRUE(before);
  problem.job.train.global_batch = 60;
  const Result<Plan> plan = again(problem, *before);
  const Result<Plan> anew = plan_search(problem.request());
  ASSERT_TRUE(plan && anew);
  EXPECT_EQ(text_of(*plan), text_of(*anew));
}

}  // namespace
}  // namespace motley
