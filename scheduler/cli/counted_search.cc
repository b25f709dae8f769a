#include "scheduler/cli/counted_search.h"

#include <string>
#include <utility>

namespace motley {

SearchPlan counted_search(SearchPlan search, SignalInbox& signals, ProgressLine& line) {
  return [search = std::move(search), &signals, &line,
          asked = 0](const PlanRequest& request) mutable -> Result<Plan> {
    if (signals.next()) return fail(ErrorCode::kStopped, "interrupted while planning");
    if (++asked > 1) line.show("planning: " + std::to_string(asked) + " requests");
    return search(request);
  };
}

}  // namespace motley
