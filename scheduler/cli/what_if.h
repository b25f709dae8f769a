#pragma once
// What would have to be different for a plan to be another, for commands that explain theirs.

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "planner/questions/counterfactuals.h"
#include "planner/questions/fleet_parts.h"
#include "scheduler/run/signal_inbox.h"

namespace motley {

/// counterfactuals() of a plan that `search` found, with progress; kStopped once a signal came.
Result<std::vector<Counterfactual>> what_would_change(const PlanRequest& request, const Plan& plan,
                                                      const SearchPlan& search,
                                                      SignalInbox& signals);

/// As core/FORMATS.md has them: `step_seconds` is null where no plan would fit.
nlohmann::json to_json(const std::vector<Counterfactual>& list);

}  // namespace motley
