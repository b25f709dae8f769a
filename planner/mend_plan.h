#pragma once
// Planning again a plan that is cut, when devices were lost: from the plan there was, without
// searching.

#include <optional>

#include "core/plan.h"
#include "core/result.h"
#include "planner/costs/layer_memory.h"
#include "planner/request.h"

namespace motley {

/// How much longer a mended plan may take than if all devices that are left were of as much use as
/// before.
inline constexpr double kEnoughMended = 0.01;

struct MendedPlan {
  Plan plan;
  bool is_enough = false;  ///< no longer than kEnoughMended allows
};

/// request.previous, whose replicas that have all their devices stay as they are. In others devices
/// of the same type come instead of those lost, of the same host where there are any: such as no
/// replica has, or of replicas that lost more. What is left of a replica then is cut anew, in the
/// order of its stages, or goes unused, whichever makes the quicker plan. Grains that nobody has
/// are dealt so that the last replica is through soonest; owners and memory are found as for any
/// plan. Nothing where that does not fit, where the plan was made for another job or profile, or
/// where there are devices that it did not know.
Result<std::optional<MendedPlan>> mend_plan(const PlanRequest& request,
                                            const MemoryCounter& counter);

}  // namespace motley
