// The plans of fleets on which models are cut: any change of a plan is seen, and has to be meant.

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "planner/search_forms.h"
#include "tests/support/cut_fleets.h"
#include "tests/support/golden.h"
#include "tests/support/layered_case.h"
#include "tests/support/planning_case.h"

namespace motley {
namespace {

using testing::PlanningCase;

/// "2 grains by 4: localhost/1 (a) 0-5, localhost/0 (b) 0.750 + localhost/2 (b) 0.250 6-13".
std::string shape_text(const Plan& plan, const ReplicaPlan& replica) {
  std::string text =
      std::to_string(replica.grains) + " grains by " + std::to_string(replica.micro_batch) + ":";
  for (const StagePlan& stage : replica.stages) {
    for (size_t i = 0; i < stage.ranks.size(); ++i) {
      const RankPlacement& rank = plan.ranks[static_cast<size_t>(stage.ranks[i].value())];
      text += (i == 0 ? " " : " + ") + rank.device + " (" + rank.type + ")";
      char share[16] = "";
      if (stage.ranks.size() > 1) std::snprintf(share, sizeof share, " %.3f", stage.shares[i]);
      text += share;
    }
    text += " " + std::to_string(stage.first_layer) + "-" + std::to_string(stage.last_layer) + ",";
  }
  text.back() = '\n';
  return text;
}

/// Of both forms, in short. Some eight devices and less; plans of more are all alike.
TEST(GoldenCutPlan, OfFleetsOnWhichModelsAreCut) {
  std::string text;
  for (const testing::CutFleet& fleet : testing::cut_fleets()) {
    const PlanningCase problem = fleet.make();
    if (problem.fleet.devices.size() > 8) continue;
    const Result<Plan> plan =
        search_all_forms(problem.request(), testing::layer_bytes_counter(problem));
    ASSERT_TRUE(plan) << fleet.name << ": " << plan.error().message;
    char step[64];
    std::snprintf(step, sizeof step, ": %.6f s, of grains of %d\n", plan->prediction.step_seconds,
                  plan->grain);
    text += fleet.name + step;
    for (const ReplicaPlan& replica : plan->replicas) text += "  " + shape_text(*plan, replica);
    for (const LeftOut& left : plan->left_out) text += "  without " + left.device + "\n";
  }
  testing::expect_golden("planner/cut_fleets.txt", text);
}

}  // namespace
}  // namespace motley
