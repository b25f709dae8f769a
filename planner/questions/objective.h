#pragma once
// The cheapest plan instead of the quickest: over sets of devices, as fewer often cost less.

#include <cstdint>
#include <optional>
#include <string>

#include "planner/questions/fleet_parts.h"

namespace motley {

/// What all steps of a job take and cost with a plan; evaluations and checkpoints are not counted.
struct Bill {
  double seconds = 0;
  double cost = 0;
};
Bill bill_of(double step_seconds, double cost_per_hour, int64_t steps);
Bill bill_of(const Plan& plan, int64_t steps);

/// "12.40", "0.0196".
std::string cost_text(double cost);

struct CheapestPlan {
  Plan plan;
  Bill bill;
  Bill quickest;  ///< of the quickest of all sets
};

/// Of the quickest plans of sets of devices (planner/questions/device_sets.h) the one whose steps
/// cost least, of those that end in time; the quickest of those that cost 0.5 % more at most. Few
/// devices are planned in every set; of more each set of types, and from the best of these on ever
/// fewer while that is cheaper. plan.search has its cost, and what none of what was searched costs
/// less than. kInvalidSpec when an admitted device has no price; kNoPlan when none ends in time.
Result<CheapestPlan> cheapest_plan(const PlanRequest& request,
                                   std::optional<double> deadline_seconds,
                                   const SearchPlan& search);

/// kNoPlan when the steps take longer with this plan.
Result<Unit> check_deadline(const Plan& plan, int64_t steps,
                            const std::optional<double>& deadline_seconds);

}  // namespace motley
