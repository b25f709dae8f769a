// What `motley worth` prints.

#include "scheduler/report/worth_table.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/golden.h"

namespace motley {
namespace {

using testing::expect_golden;

Mix mix(std::vector<TypeShare> types, double step_seconds) {
  Mix mix;
  mix.types = std::move(types);
  mix.step_seconds = step_seconds;
  mix.samples_per_second = 64 / step_seconds;
  mix.solo_sum_samples_per_second = 1.05 * mix.samples_per_second;
  mix.uncertainty = 0.01;
  return mix;
}

/// Two A100 are helped by one of two RTX 3090, not by a gtx1070; a t4 holds nothing.
Worth made_up_worth() {
  Worth worth;
  worth.types = {"A100", "RTX3090", "gtx1070", "t4"};
  worth.mixes = {mix({{"A100", 2, 2}, {"RTX3090", 2, 1}}, 0.100), mix({{"A100", 2, 2}}, 0.130),
                 mix({{"A100", 2, 2}, {"gtx1070", 1, 1}}, 0.150),
                 mix({{"A100", 2, 2}, {"RTX3090", 2, 2}, {"gtx1070", 1, 1}}, 0.160)};
  worth.mixes[0].cost_per_hour = 2.8;
  worth.mixes[1].cost_per_hour = 2.4;
  for (const size_t with_old : {size_t{2}, size_t{3}})
    worth.mixes[with_old].better_without = {"gtx1070"};
  for (const bool with_old : {false, true}) {
    Mix& none = worth.mixes.emplace_back();
    none.types = {{"A100", 2, 0}, {"RTX3090", 2, 0}};
    if (with_old) none.types.push_back({"gtx1070", 1, 0});
    none.types.push_back({"t4", 1, 0});
    none.why_not = "t4: memory: needs 17.2 GiB of 15.2 GiB at micro-batch 1";
  }
  worth.advice = Advice::kLeaveOut;
  return worth;
}

TEST(WorthTable, Text) {
  expect_golden("report/worth.txt", worth_text(made_up_worth(), Evidence::kMeasured));
}

TEST(WorthTable, Json) {
  expect_golden("report/worth.json",
                worth_json(made_up_worth(), Evidence::kMeasured).dump(1) + "\n");
}

TEST(WorthTable, WithoutPricesThereAreNoColumnsOfCosts) {
  Worth worth = made_up_worth();
  for (Mix& mix : worth.mixes) mix.cost_per_hour.reset();
  EXPECT_EQ(worth_text(worth, Evidence::kPaced).find("an hour"), std::string::npos);
}

TEST(WorthTable, SaysWhereNotEverySetWasPlanned) {
  Worth worth = made_up_worth();
  worth.every_set = false;
  EXPECT_NE(worth_text(worth, Evidence::kPaced).find("not every set"), std::string::npos);
}

TEST(WorthTable, MixesAsQuickAsTheFirstAreToldSo) {
  Worth worth = made_up_worth();
  worth.mixes[1] = mix({{"A100", 2, 2}}, 0.1005);
  EXPECT_NE(worth_text(worth, Evidence::kPaced).find("as quick as the first"), std::string::npos);
}

}  // namespace
}  // namespace motley
