#pragma once
// What follows when a device runs out of memory: the same work in smaller micro-batches.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/plan.h"
#include "core/profile.h"
#include "core/result.h"
#include "core/spec/fleet_spec.h"
#include "core/spec/job_spec.h"
#include "planner/request.h"
#include "scheduler/report/run_summary.h"

namespace motley {

struct MemoryReplan {
  Plan plan;
  Profile profile;  ///< without the micro-batches that are now known not to fit the device
  OutOfMemory what;
};

/// Counts what the ranks of a plan need, as run/given_plan.h does.
using CountPlan = std::function<Result<std::vector<RankMemory>>(const Plan& plan)>;

/// A plan in which the device of `rank` gets micro-batches at most half as large (at least the
/// smallest there may be), or none where the search finds that it is no longer of use. Of a plan by
/// hand, or one that is cut, the rest stays as it is: `count` is asked about it. kNoPlan where not
/// even the smallest micro-batch fitted: one sample, or the grain where job, numerics or a plan by
/// hand fix it.
Result<MemoryReplan> plan_for_less_memory(const PlanRequest& request, const Plan& plan, Rank rank,
                                          const CountPlan& count);

}  // namespace motley
