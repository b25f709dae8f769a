// Whether mixing is worth it: the verdict on constructed fleets, and every set of types against
// every set of devices.

#include "planner/questions/worth.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstdint>
#include <map>
#include <set>

#include "planner/plain/search.h"
#include "tests/support/planning_case.h"

namespace motley {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::LinearDevice;
using ::testing::Not;
using testing::PlanningCase;
using ::testing::StartsWith;

LinearDevice card(const std::string& type, double per_sample) {
  return {.type = type, .fixed = 0, .per_sample = per_sample};
}

/// As measured on the virtual clock: each repetition takes as long as the others.
PlanningCase steady(PlanningCase problem, double spread = 0) {
  for (DeviceProfile& device : problem.profile.devices)
    for (CurvePoint& point : device.curves[0].points) point.spread = spread;
  return problem;
}

Worth worth_of(const PlanningCase& problem) {
  auto worth = compare_mixes(problem.request(), plan_search);
  EXPECT_TRUE(worth) << worth.error().to_string();
  return worth ? *std::move(worth) : Worth{};
}

const Mix& mix_of(const Worth& worth, const std::vector<std::string>& types) {
  for (const Mix& mix : worth.mixes)
    if (mix.names() == types) return mix;
  ADD_FAILURE() << "no mix of " << listed_types(types);
  return worth.mixes.front();
}

TEST(Worth, AllAreMixedWhereEachBringsSomething) {
  PlanningCase problem(12);
  problem.add(card("fast", 0.010)).add(card("slow", 0.020));
  const Worth worth = worth_of(steady(problem));
  EXPECT_EQ(worth.advice, Advice::kMixAll);
  EXPECT_TRUE(worth.every_set);
  ASSERT_EQ(worth.mixes.size(), 3U);
  EXPECT_THAT(worth.best().names(), ElementsAre("fast", "slow"));
  // 8 : 4 in 80 ms, where the fast one alone takes 120 ms.
  EXPECT_DOUBLE_EQ(worth.best().step_seconds, 0.080);
  EXPECT_EQ(verdict(worth), "mix all: 1.50x the best single type (fast)");
}

TEST(Worth, ATypeThatSlowsTheRestIsLeftOut) {
  PlanningCase problem(12);
  problem.add(card("fast", 0.010)).add(card("slow", 0.020)).add(card("gtx1070", 0.100));
  const Worth worth = worth_of(steady(problem));
  EXPECT_EQ(worth.advice, Advice::kLeaveOut);
  EXPECT_THAT(worth.best().names(), ElementsAre("fast", "slow"));
  EXPECT_THAT(worth.left_out(), ElementsAre("gtx1070"));
  // With it one sample alone takes 100 ms; without it all take 80 ms.
  const Mix& all = mix_of(worth, {"fast", "slow", "gtx1070"});
  EXPECT_DOUBLE_EQ(all.step_seconds, 0.100);
  EXPECT_THAT(all.better_without, ElementsAre("gtx1070"));
  EXPECT_EQ(verdict(worth),
            "leave the gtx1070 out: 25 % faster without; mix fast and slow: 1.50x the best single "
            "type (fast)");
}

TEST(Worth, OneTypeAloneWhereSumsCostMoreThanTheOthersBring) {
  PlanningCase problem(8);
  problem.add(card("A100", 0.010)).add(card("old", 0.040)).add_reduction(2, 0.060);
  const Worth worth = worth_of(steady(problem));
  EXPECT_EQ(worth.advice, Advice::kOneType);
  EXPECT_THAT(worth.best().names(), ElementsAre("A100"));
  // 80 ms alone; together at least 70 ms (7 : 1) and 60 ms for the sum.
  EXPECT_EQ(verdict(worth),
            "mixing brings nothing: use the A100 alone; A100 and old together: 38 % slower");
}

TEST(Worth, ATypeThatCannotHoldTheModelIsLeftOutForThatReason) {
  PlanningCase problem(12);
  problem.add(card("fast", 0.010)).add(card("slow", 0.020)).add(card("small", 0.010));
  problem.profile.devices.back().memory_limit = Bytes(1 << 20);
  const Worth worth = worth_of(steady(problem));
  EXPECT_THAT(mix_of(worth, {"small"}).why_not, HasSubstr("no device can hold the model"));
  EXPECT_THAT(mix_of(worth, {"fast", "small"}).why_not, StartsWith("small: memory: needs "));
  EXPECT_THAT(verdict(worth), StartsWith("leave the small out: memory: needs "));
  EXPECT_THAT(verdict(worth), HasSubstr("; mix fast and slow: 1.50x"));
}

TEST(Worth, EachTypeThatIsLeftOutHasItsOwnReason) {
  PlanningCase problem(12);
  problem.add(card("fast", 0.010)).add(card("slow", 0.020)).add(card("old", 0.100));
  problem.add(card("small", 0.010));
  problem.profile.devices.back().memory_limit = Bytes(1 << 20);
  EXPECT_THAT(verdict(worth_of(steady(problem))),
              StartsWith("leave the old out: 25 % faster without; leave the small out: memory: "));
}

TEST(Worth, OnlyOneTypeHoldsTheModel) {
  PlanningCase problem(8);
  problem.add(card("big", 0.010)).add(card("small", 0.010));
  problem.profile.devices.back().memory_limit = Bytes(1 << 20);
  EXPECT_THAT(verdict(worth_of(problem)),
              StartsWith("mixing brings nothing: use the big alone; small: memory: needs"));
}

TEST(Worth, WithoutAPlanForAnyTheErrorIsThatOfAll) {
  PlanningCase problem(8);
  problem.add(card("a", 0.010)).add(card("b", 0.010));
  for (DeviceProfile& device : problem.profile.devices) device.memory_limit = Bytes(1 << 20);
  const auto worth = compare_mixes(problem.request(), plan_search);
  ASSERT_FALSE(worth);
  EXPECT_EQ(worth.error().code, ErrorCode::kNoPlan);
  EXPECT_THAT(worth.error().message, HasSubstr("no device can hold the model"));
}

TEST(Worth, ASearchThatFailsEndsTheComparison) {
  PlanningCase problem(8);
  problem.add(card("a", 0.010)).add(card("b", 0.010));
  int asked = 0;
  const auto worth = compare_mixes(problem.request(), [&](const PlanRequest& request) {
    return ++asked < 2 ? plan_search(request)
                       : Result<Plan>(fail(ErrorCode::kStopped, "interrupted"));
  });
  ASSERT_FALSE(worth);
  EXPECT_EQ(worth.error().code, ErrorCode::kStopped);
  EXPECT_EQ(asked, 2);
}

TEST(Worth, OfOneTypeThereIsNothingToMix) {
  PlanningCase problem(8);
  problem.add(card("card", 0.010)).add(card("card", 0.010));
  const Worth worth = worth_of(problem);
  EXPECT_EQ(worth.advice, Advice::kNothingToMix);
  EXPECT_EQ(verdict(worth), "nothing to mix: all devices are card");
}

TEST(Worth, DevicesThatStayIdleAreCounted) {
  PlanningCase problem(4);
  problem.add(card("fast", 0.010)).add(card("slow", 0.030)).add(card("slow", 0.030));
  // 3 : 1 takes 30 ms, 2 : 1 : 1 as well.
  const Worth worth = worth_of(steady(problem));
  EXPECT_EQ(worth.best().types[1].used, 1);
  EXPECT_EQ(worth.best().types[1].devices, 2);
  EXPECT_THAT(verdict(worth), HasSubstr("; 1 of 2 slow stays idle"));
}

TEST(Worth, FewerDevicesWhereNobodyCanTellTheDifference) {
  PlanningCase problem(40);
  problem.add(card("fast", 0.010)).add(card("slow", 0.390));
  // 39 : 1 takes 390 ms, alone 400 ms: 2.6 % more.
  EXPECT_EQ(worth_of(steady(problem)).advice, Advice::kMixAll);
  const Worth unsteady = worth_of(steady(problem, 0.03));
  EXPECT_EQ(unsteady.advice, Advice::kOneType);
  EXPECT_EQ(verdict(unsteady),
            "mixing brings nothing: use the fast alone; fast and slow together: as quick "
            "(predictions may be off by 3.0 %)");
}

TEST(Worth, WhatIsClearlyQuickerCountsHoweverUnsteadyTheMeasurements) {
  PlanningCase problem(12);
  problem.add(card("fast", 0.010)).add(card("slow", 0.020));
  EXPECT_EQ(worth_of(steady(problem, 0.9)).advice, Advice::kMixAll);
}

TEST(Worth, CostsOfWhatIsUsedAndPriced) {
  PlanningCase problem(12);
  problem.add(card("fast", 0.010)).add(card("slow", 0.020)).add(card("own", 0.020));
  problem.fleet.devices[0].price_per_hour = 2;
  problem.fleet.devices[1].price_per_hour = 0.5;
  const Worth worth = worth_of(steady(problem));
  const Mix& priced = mix_of(worth, {"fast", "slow"});
  EXPECT_DOUBLE_EQ(*priced.cost_per_hour, 2.5);
  // 12 samples in 80 ms: a million in 1.852 h.
  EXPECT_NEAR(*priced.cost_per_million_samples(), 2.5 * 1e6 / 150 / 3600, 1e-9);
  EXPECT_FALSE(mix_of(worth, {"fast", "slow", "own"}).cost_per_hour);
}

TEST(Worth, TheJobsDemandsHold) {
  PlanningCase problem(12);
  problem.add(card("fast", 0.010)).add(card("slow", 0.020)).add(card("old", 0.020));
  problem.job.devices.types = {"fast", "slow"};
  problem.job.devices.count = CountRange{2, 2};
  const Worth worth = worth_of(problem);
  EXPECT_THAT(worth.types, ElementsAre("fast", "slow"));
  EXPECT_THAT(mix_of(worth, {"fast"}).why_not, HasSubstr("the job wants 2 devices"));
  EXPECT_EQ(verdict(worth), "mix all: no type can train this alone");
}

TEST(Worth, OfManyTypesNotEverySetIsPlanned) {
  PlanningCase problem(24);  // two samples for each of the quick ones
  const int types = kMostTypesForEverySet + 2;
  for (int i = 0; i < types; ++i) problem.add(card("type" + std::to_string(i), i < 2 ? 5 : 0.010));
  const Worth worth = worth_of(steady(problem));
  EXPECT_FALSE(worth.every_set);
  // All, each left out, each alone; and those 12 that the quickest plan uses.
  EXPECT_EQ(worth.mixes.size(), 1U + 2 * static_cast<size_t>(types) + 1);
  EXPECT_THAT(worth.left_out(), ElementsAre("type0", "type1"));
  EXPECT_THAT(verdict(worth), StartsWith("leave the type0 and type1 out: "));
}

using Types = std::set<std::string>;

/// The least step of any devices of exactly these types, each plan by enumeration.
std::map<Types, double> brute_force(const PlanningCase& problem) {
  std::map<Types, double> least;
  const auto devices = static_cast<uint32_t>(problem.fleet.devices.size());
  const CountRange wanted = problem.job.devices.count.value_or(CountRange{});
  for (uint32_t set = 1; set < uint32_t{1} << devices; ++set) {
    const int count = __builtin_popcount(set);
    if (count < wanted.low || count > wanted.high) continue;
    PlanningCase part = problem;
    part.fleet.devices.clear();
    Types types;
    for (uint32_t i = 0; i < devices; ++i) {
      if ((set >> i & 1) == 0) continue;
      part.fleet.devices.push_back(problem.fleet.devices[i]);
      types.insert(problem.fleet.devices[i].type);
    }
    part.job.devices.count = CountRange{count, count};
    const Result<Plan> plan = plan_exhaustive(part.request());
    if (!plan) continue;
    const auto [known, is_new] = least.try_emplace(types, plan->prediction.step_seconds);
    if (!is_new) known->second = std::min(known->second, plan->prediction.step_seconds);
  }
  return least;
}

RC_GTEST_PROP(WorthProperties, AgreesWithBruteForceOverDevices, ()) {
  std::mt19937 random(*rc::gen::noShrink(rc::gen::arbitrary<uint32_t>()));
  PlanningCase problem = testing::random_case(random, 4);
  for (size_t i = 0; i < problem.fleet.devices.size(); ++i) {
    const std::string type = std::string("type") + static_cast<char>('a' + *rc::gen::inRange(0, 3));
    problem.fleet.devices[i].type = problem.profile.devices[i].type = type;
  }
  const std::map<Types, double> least = brute_force(problem);
  const Result<Worth> worth = compare_mixes(problem.request(), plan_search);
  RC_ASSERT(worth.has_value() == !least.empty());
  if (!worth) return;
  constexpr double kRounding = 1e-9;
  const double quickest = worth->mixes.front().step_seconds;
  for (const auto& [types, step] : least) RC_ASSERT(quickest <= step * (1 + kRounding));
  RC_ASSERT(worth->best().step_seconds <= quickest * 1.05);
  for (const Mix& mix : worth->mixes) {
    const auto names = mix.names();
    const auto found = least.find(Types(names.begin(), names.end()));
    RC_ASSERT(mix.has_plan() == (found != least.end()));
    if (!mix.has_plan()) continue;
    RC_ASSERT(mix.step_seconds >= found->second * (1 - kRounding));
    if (mix.better_without.empty()) RC_ASSERT(mix.step_seconds <= found->second * (1 + kRounding));
  }
}

RC_GTEST_PROP(WorthProperties, WhatIsBetterLeftOutIsNeverChosen, ()) {
  std::mt19937 random(*rc::gen::noShrink(rc::gen::arbitrary<uint32_t>()));
  PlanningCase problem = testing::random_case(random, 5);
  for (size_t i = 0; i < problem.fleet.devices.size(); ++i)
    problem.fleet.devices[i].type = problem.profile.devices[i].type =
        "type" + std::to_string(i % 3);
  const Result<Worth> worth = compare_mixes(problem.request(), plan_search);
  RC_PRE(worth.has_value());
  RC_ASSERT(worth->best().better_without.empty());
  for (const Mix& mix : worth->mixes) {
    if (!mix.has_plan() || mix.better_without.empty()) continue;
    RC_ASSERT(mix.step_seconds >= worth->mixes.front().step_seconds);
  }
}

}  // namespace
}  // namespace motley
