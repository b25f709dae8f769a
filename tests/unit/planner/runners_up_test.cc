// What --explain says of those that lost.

#include "planner/plain/runners_up.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/units.h"
#include "planner/plain/search.h"
#include "planner/questions/explain.h"
#include "tests/support/planning_case.h"

namespace motley {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::PlanningCase;

/// Three to one, for whom any grain up to a sixth of the batch cuts 6 : 2.
PlanningCase three_to_one() {
  PlanningCase problem(8);
  problem.add({.fixed = 0, .per_sample = 0.1}).add({.fixed = 0, .per_sample = 0.3});
  return problem;
}

std::string why_not(const Plan& plan, const std::string& what) {
  for (const RejectedPlan& rejected : plan.search.rejected)
    if (rejected.what == what) return rejected.why;
  return "";
}

TEST(RunnersUp, StepsThatDifferByRoundingAreEquallyQuick) {
  EXPECT_TRUE(equally_quick(0.533427962, 0.533427963));
  EXPECT_TRUE(equally_quick(5.23e-3, 5.23e-3 + 1e-16));
  EXPECT_FALSE(equally_quick(0.533, 0.534));
  EXPECT_FALSE(equally_quick(1, kNever));
}

TEST(RunnersUp, AGrainThatIsEquallyQuickLostForNoOtherReason) {
  const auto plan = plan_search(three_to_one().request());
  ASSERT_TRUE(plan) << plan.error().to_string();
  const int other = plan->grain == 1 ? 2 : 1;
  EXPECT_THAT(why_not(*plan, "grain " + std::to_string(other)), HasSubstr("equally quick"));
  EXPECT_THAT(explain(*plan),
              Not(HasSubstr("next best " + format_seconds(plan->prediction.step_seconds) + ";")));
}

TEST(RunnersUp, AGrainTooCoarseForTheSharesIsSaidToBe) {
  const auto plan = plan_search(three_to_one().request());
  ASSERT_TRUE(plan) << plan.error().to_string();
  EXPECT_EQ(why_not(*plan, "grain 4"), "shares cannot be cut as finely");
}

}  // namespace
}  // namespace motley
