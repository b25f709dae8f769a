#pragma once
// The cheapest plan instead of the quickest: over sets of device types, as
// planner/questions/worth.h.

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
Bill bill_of(const Plan& plan, int64_t steps);

/// "12.40", "0.0196".
std::string cost_text(double cost);

struct CheapestPlan {
  Plan plan;
  Bill bill;
  Bill quickest;  ///< of the quickest of all sets
};

/// Of the quickest plans of each set of device types (sets_of_types) the one whose steps cost
/// least, of those that end in time; of equals the quicker. kInvalidSpec when an admitted device
/// has no price; kNoPlan when none ends in time.
Result<CheapestPlan> cheapest_plan(const PlanRequest& request,
                                   std::optional<double> deadline_seconds,
                                   const SearchPlan& search);

/// kNoPlan when the steps take longer with this plan.
Result<Unit> check_deadline(const Plan& plan, int64_t steps,
                            const std::optional<double>& deadline_seconds);

}  // namespace motley
