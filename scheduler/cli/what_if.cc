#include "scheduler/cli/what_if.h"

#include <nlohmann/json.hpp>

#include "scheduler/cli/counted_search.h"

namespace motley {

Result<std::vector<Counterfactual>> what_would_change(const PlanRequest& request, const Plan& plan,
                                                      const SearchPlan& search,
                                                      SignalInbox& signals) {
  ProgressLine line(steady_clock());
  return counterfactuals(request, plan, counted_search(search, signals, line));
}

nlohmann::json to_json(const std::vector<Counterfactual>& list) {
  nlohmann::json all = nlohmann::json::array();
  for (const Counterfactual& what : list)
    all.push_back({{"what", what.what},
                   {"step_seconds",
                    what.step_seconds > 0 ? nlohmann::json(what.step_seconds) : nlohmann::json()}});
  return all;
}

}  // namespace motley
