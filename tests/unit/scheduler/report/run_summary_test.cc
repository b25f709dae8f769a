#include "scheduler/report/run_summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/golden.h"
#include "tests/unit/scheduler/report/made_up_run.h"

namespace motley {
namespace {

using testing::expect_golden;
using ::testing::HasSubstr;
using testing::made_up_summary;

TEST(RunSummary, IsTheDocumentOfARun) {
  RunSummary summary = made_up_summary();
  summary.set_aside = {testing::made_up_damage()};
  summary.out_of_memory = {{"r1/0", "RTX3090", 8, 4}, {"r1/0", "RTX3090", 4, 0}};
  expect_golden("report/report.json", to_json(summary).dump(1) + "\n");
}

TEST(RunSummary, SurvivesBeingWritten) {
  for (const Evidence kind :
       {Evidence::kSimulated, Evidence::kPaced, Evidence::kThrottled, Evidence::kMeasured}) {
    RunSummary summary = made_up_summary();
    summary.kind = kind;
    summary.set_aside = {testing::made_up_damage()};
    summary.out_of_memory = {{"r1/0", "RTX3090", 8, 4}, {"r1/1", "GTX1070", 2, 0}};
    const auto again = run_summary_from_json(to_json(summary));
    ASSERT_TRUE(again) << again.error().to_string();
    EXPECT_EQ(to_json(*again), to_json(summary));
  }
}

TEST(RunSummary, WhatIsNoNumberIsNull) {
  RunSummary summary = made_up_summary();
  summary.final_loss = NAN;
  summary.eval_loss = NAN;
  summary.equal_split.reset();
  const auto read = nlohmann::json::parse(to_json(summary).dump());
  EXPECT_TRUE(read["final_loss"].is_null());
  EXPECT_TRUE(read["eval_loss"].is_null());
  EXPECT_TRUE(read["equal_split_samples_per_second"].is_null());
  const auto again = run_summary_from_json(read);
  ASSERT_TRUE(again) << again.error().to_string();
  EXPECT_TRUE(std::isnan(again->final_loss));
  EXPECT_FALSE(again->eval_loss);
  EXPECT_FALSE(again->equal_split);
}

TEST(RunSummary, KeepsWhyAnEqualSplitWasNotMeasured) {
  RunSummary summary = made_up_summary();
  summary.equal_split = EqualSplit{"", 0, "rank 3 was killed"};
  const auto read = nlohmann::json::parse(to_json(summary).dump());
  EXPECT_TRUE(read["equal_split_samples_per_second"].is_null());
  EXPECT_TRUE(read["equal_split_form"].is_null());
  const auto again = run_summary_from_json(read);
  ASSERT_TRUE(again) << again.error().to_string();
  ASSERT_TRUE(again->equal_split);
  EXPECT_EQ(again->equal_split->not_measured, "rank 3 was killed");
}

TEST(RunSummary, WhatIsNotKnownIsNullAndNeverZero) {
  RunSummary unknown;
  unknown.state = "interrupted";
  unknown.ranks = {{0, "a1/0", {}, {}, {}, {}, 0, {}}};
  const auto read = nlohmann::json::parse(to_json(unknown).dump());
  for (const char* name :
       {"first_loss", "final_loss", "eval_loss", "samples_per_second",
        "solo_sum_samples_per_second", "efficiency", "integer_bound_efficiency",
        "equal_split_samples_per_second", "equal_split_form", "equal_split_not_measured",
        "predicted_step_seconds", "actual_step_seconds", "restarts", "weights_xxh3", "plan_id"})
    EXPECT_TRUE(read[name].is_null()) << name;
  for (const char* name : {"compute_seconds", "wait_seconds", "update_seconds"})
    EXPECT_TRUE(read["ranks"][0][name].is_null()) << name;
  const auto again = run_summary_from_json(read);
  ASSERT_TRUE(again) << again.error().to_string();
  EXPECT_EQ(to_json(*again).dump(), to_json(unknown).dump());
}

TEST(RunSummary, RefusesADocumentThatIsNone) {
  auto wrong_kind = to_json(made_up_summary());
  wrong_kind["kind"] = "guessed";
  auto missing = to_json(made_up_summary());
  missing.erase("steps");
  auto not_a_number = to_json(made_up_summary());
  not_a_number["restarts"] = "two";
  for (const nlohmann::json& document :
       {wrong_kind, missing, not_a_number, nlohmann::json::array(), nlohmann::json()}) {
    const auto read = run_summary_from_json(document);
    ASSERT_FALSE(read) << document.dump();
    EXPECT_EQ(read.error().code, ErrorCode::kCorrupt);
    EXPECT_THAT(read.error().message, HasSubstr("malformed report"));
  }
}

}  // namespace
}  // namespace motley
