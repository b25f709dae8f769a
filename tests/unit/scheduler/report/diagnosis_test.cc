#include "scheduler/report/diagnosis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace motley {
namespace {

using ::testing::HasSubstr;

struct Times {
  double compute = 0, update = 0, input = 0, wait = 0;
};

AttemptResult told(const std::vector<Times>& times) {
  AttemptResult result;
  std::vector<RankActual>& ranks = result.ranks;
  for (const Times& each : times) {
    RankActual& rank = ranks.emplace_back();
    rank.rank = static_cast<int>(ranks.size()) - 1;
    rank.compute_seconds = each.compute;
    rank.update_seconds = each.update;
    rank.input_seconds = each.input;
    rank.wait_seconds = each.wait;
  }
  return result;
}

StagePlan stage_on(Rank rank) { return {.ranks = {rank}, .shares = {1.0}}; }

/// A replica on each rank, on these hosts.
Plan plan_on(const std::vector<std::string>& hosts) {
  Plan plan;
  for (const std::string& host : hosts) {
    const Rank rank(static_cast<int>(plan.ranks.size()));
    plan.ranks.push_back({host + "/0", host, "card"});
    plan.replicas.push_back({.stages = {stage_on(rank)}, .micro_batch = 1, .grains = 1});
  }
  return plan;
}

Diagnosis found(const std::vector<Times>& times, const Plan& plan) {
  const auto diagnosis = diagnose(told(times), plan);
  EXPECT_TRUE(diagnosis.has_value());
  return diagnosis.value_or(Diagnosis());
}

TEST(Diagnosis, ComputingIsWhatIsLeft) {
  const Diagnosis all_alike =
      found({{9, 0.3, 0.2, 0.5}, {9.2, 0.3, 0.2, 0.3}}, plan_on({"a", "b"}));
  EXPECT_EQ(all_alike.limit, Limit::kCompute);
  EXPECT_EQ(all_alike.rank, 1);
  EXPECT_DOUBLE_EQ(all_alike.step_seconds, 10);
  EXPECT_EQ(found({{5, 1, 0, 0}}, plan_on({"a"})).limit, Limit::kCompute);
}

TEST(Diagnosis, ItsCostsMakeUpTheStep) {
  double sum = 0;
  const Diagnosis diagnosis = found({{4, 1, 0, 5}, {6, 1, 2, 1}}, plan_on({"a", "b"}));
  for (const StepCost& cost : diagnosis.costs) sum += cost.seconds;
  EXPECT_DOUBLE_EQ(sum, diagnosis.step_seconds);
}

TEST(Diagnosis, SamplesThatComeLate) {
  const Diagnosis late = found({{4, 1, 0, 5.2}, {4, 1, 5, 0.2}}, plan_on({"a", "b"}));
  EXPECT_EQ(late.limit, Limit::kInput);
  EXPECT_EQ(late.rank, 1);
  // Where nobody waits for them they do no harm.
  EXPECT_EQ(found({{4, 1, 2, 3.2}, {9, 1, 0, 0.2}}, plan_on({"a", "b"})).limit, Limit::kImbalance);
}

TEST(Diagnosis, WhatEvenTheLastWaitsTravels) {
  const std::vector<Times> times = {{6, 1, 0, 3}, {5.9, 1, 0, 3.1}};
  EXPECT_EQ(found(times, plan_on({"a", "b"})).limit, Limit::kNetwork);
  EXPECT_EQ(found(times, plan_on({"a", "a"})).limit, Limit::kHostLink);
}

TEST(Diagnosis, WhereNowOneIsLastAndNowAnotherLittleTravels) {
  AttemptResult result = told({{6, 1, 0, 3}, {6, 1, 0, 3}});
  result.least_wait_seconds = 0.1;
  const auto uneven = diagnose(result, plan_on({"a", "b"}));
  ASSERT_TRUE(uneven);
  EXPECT_EQ(uneven->limit, Limit::kWaiting);
  EXPECT_NEAR(uneven->share(), 0.29, 1e-12);
}

TEST(Diagnosis, OneRankHasNoLinks) {
  const Diagnosis alone = found({{6, 1, 0, 3}}, plan_on({"a"}));
  EXPECT_EQ(alone.limit, Limit::kCompute);
  EXPECT_EQ(alone.costs.size(), 1u);
}

TEST(Diagnosis, StateInHostMemoryCostsItsLink) {
  Plan plan = plan_on({"a", "b"});
  const std::vector<Times> times = {{5, 4, 0, 0.5}, {8.5, 0.4, 0, 0.6}};
  EXPECT_EQ(found(times, plan).limit, Limit::kCompute);
  plan.ranks[0].host_optimizer = true;
  const Diagnosis swapped = found(times, plan);
  EXPECT_EQ(swapped.limit, Limit::kHostLink);
  EXPECT_EQ(swapped.rank, 0);
  EXPECT_NEAR(swapped.share(), 4 / 9.5, 1e-12);
}

TEST(Diagnosis, OneWithMoreToDo) {
  const Diagnosis uneven =
      found({{3, 0.1, 0, 6.1}, {9, 0.1, 0, 0.1}, {3, 0.1, 0, 6.1}}, plan_on({"a", "b", "c"}));
  EXPECT_EQ(uneven.limit, Limit::kImbalance);
  EXPECT_EQ(uneven.rank, 1);
  EXPECT_NEAR(uneven.share(), (9.1 - 5.1) / 9.2, 1e-12);
}

TEST(Diagnosis, StagesWaitForEachOther) {
  Plan plan = plan_on({"a", "b"});
  plan.replicas = {
      {.stages = {stage_on(Rank(0)), stage_on(Rank(1))}, .micro_batch = 1, .grains = 2}};
  plan.prediction.communication_seconds = 0.5;
  const std::vector<Times> times = {{6, 0.2, 0, 3.8}, {6, 0.2, 0, 3.8}};
  EXPECT_EQ(found(times, plan).limit, Limit::kWaiting);
  plan.prediction.communication_seconds = 3;
  EXPECT_EQ(found(times, plan).limit, Limit::kNetwork);
}

TEST(Diagnosis, NeedsAllRanks) {
  AttemptResult result = told({{1, 0, 0, 0}, {1, 0, 0, 0}});
  result.ranks[1].wait_seconds.reset();
  EXPECT_EQ(diagnose(result, plan_on({"a", "b"})).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(diagnose({}, plan_on({"a"})).error().code, ErrorCode::kNotFound);
}

TEST(Diagnosis, InWordsAndAsJson) {
  const Plan plan = plan_on({"a", "b"});
  const Diagnosis diagnosis = found({{6, 1, 0, 3}, {5.9, 1, 0, 3.1}}, plan);
  const std::string text = diagnosis_text(diagnosis, plan, true);
  EXPECT_THAT(text, HasSubstr("network: 30 % of a step of 10 s on rank 0, a/0 (card on a)"));
  EXPECT_THAT(text, HasSubstr("\nwhat helps: "));
  const nlohmann::json json = to_json(diagnosis, plan, true);
  EXPECT_EQ(json["limit"], "network");
  EXPECT_EQ(json["device"], "a/0");
  EXPECT_EQ(json["costs"].size(), 3u);
}

}  // namespace
}  // namespace motley
