#pragma once
// What plain data parallelism needs besides the engines that profiles know: core/rank_memory.h for
// ranks that hold all of the model each, with even owners. It depends on how many ranks there are,
// which a search has still to find.

#include <functional>

#include "core/device_islands.h"
#include "core/plan.h"
#include "core/result.h"
#include "planner/request.h"

namespace motley {

/// Of a rank of a valid plain plan, `gpus` its islands, for which its memory table says `engine`.
RankMemory plain_memory(const PlanRequest& request, const Plan& plan, const DeviceIslands& gpus,
                        Rank rank, Bytes engine);

/// The quickest plan of what `search` finds where memory tables mean all that a rank needs: it is
/// asked for at least 1, 2, 3, 4, 6, 8, 12, … ranks, with tables of what these need (more ranks
/// need less each), as often as more fits then. Of several errors the first.
Result<Plan> best_over_ranks(const PlanRequest& request,
                             const std::function<Result<Plan>(const PlanRequest&)>& search);

}  // namespace motley
