// The plans of the fleets in configs/, from profiles that were once measured under their virtual
// clock: any change of a plan is seen, and has to be meant.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "planner/plain/search.h"
#include "planner/questions/explain.h"
#include "tests/support/golden.h"
#include "tests/support/planning_case.h"

namespace motley {
namespace {

using testing::expect_golden;
using testing::golden;
using testing::PlanningCase;

/// tests/golden/planner/NAME.profile.json and the fleet it was measured on.
PlanningCase measured_case(const std::string& name, int global_batch) {
  PlanningCase problem(global_batch);
  problem.job.model = {"gpt", 4, 4, 128, 64, 256};
  Result<Profile> profile =
      profile_from_json(nlohmann::json::parse(golden("planner/" + name + ".profile.json")));
  EXPECT_TRUE(profile) << profile.error().to_string();
  problem.profile = std::move(*profile);
  for (const DeviceProfile& device : problem.profile.devices) {
    DeviceSpec spec;
    spec.id = device.device;
    spec.host = "localhost";
    spec.kind = DeviceKind::kCpu;
    spec.type = device.type;
    problem.fleet.devices.push_back(spec);
  }
  return problem;
}

/// Everything but who owns which slice, which the id covers; one member a line.
std::string document_of(const Plan& plan) {
  nlohmann::json document = to_json(plan);
  document.erase("owners");
  return document.dump(1) + "\n";
}

double efficiency(const Prediction& prediction) {
  return prediction.samples_per_second / prediction.solo_sum_samples_per_second;
}

Plan expect_golden_plan(const std::string& name, const PlanningCase& problem) {
  const Result<Plan> plan = plan_search(problem.request());
  EXPECT_TRUE(plan) << plan.error().message;
  expect_golden("planner/" + name + ".plan.json", document_of(*plan));
  expect_golden("planner/" + name + ".explain.txt", explain(*plan));
  EXPECT_LE(efficiency(plan->prediction), plan->prediction.integer_bound_efficiency);
  return *plan;
}

TEST(GoldenPlan, Quickstart) {
  const PlanningCase problem = measured_case("quickstart", 32);
  const Plan plan = expect_golden_plan("quickstart", problem);
  EXPECT_GE(efficiency(plan.prediction), 0.93);
  const Plan equal = *plan_equal_split(problem.request());
  EXPECT_GE(equal.prediction.step_seconds / plan.prediction.step_seconds, 1.7);
}

TEST(GoldenPlan, Uneven) {
  const Plan plan = expect_golden_plan("uneven", measured_case("uneven", 64));
  EXPECT_GE(efficiency(plan.prediction), 0.90);
  EXPECT_GE(efficiency(plan.prediction), 0.99 * plan.prediction.integer_bound_efficiency);
}

TEST(GoldenPlan, UnevenInExactWithTheJobsGrain) {
  PlanningCase problem = measured_case("uneven", 64);
  problem.job.train.numerics = Numerics::kExact;
  problem.job.train.grain = 2;
  const Plan plan = expect_golden_plan("uneven_exact", problem);
  EXPECT_EQ(plan.grain, 2);
  EXPECT_GE(efficiency(plan.prediction), 0.90);
}

}  // namespace
}  // namespace motley
