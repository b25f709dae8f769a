#pragma once
// What the ranks of a plan exchange at the end of a step, and how long the step waits for it.

#include <vector>

#include "core/plan.h"
#include "planner/costs/cost_model.h"
#include "planner/costs/slice_traffic.h"
#include "planner/costs/sums_beside.h"
#include "planner/request.h"

namespace motley {

/// Of each rank, when it computes; seconds from the step's begin.
struct RankPasses {
  std::vector<double> ready;             ///< with the update of the step before
  std::vector<PassTimes> first_forward;  ///< of its first micro-batch
  std::vector<PassTimes> last_backward;  ///< of its last
  double end = 0;                        ///< of the last rank's computing
};

/// All of it, and of that what a step takes longer.
struct StepSums {
  double all = 0, exposed = 0;
};

/// Of the rank or the host with the most to exchange: a reduction of the whole gradient over as
/// many ranks, in proportion to the bytes. `traffic` null: of a plan of whole replicas, whose
/// reduction is what was measured. `passes` null: all begins when everybody has computed.
StepSums step_sums(const PlanRequest& request, const Plan& plan, const PlanTraffic* traffic,
                   const RankPasses* passes);

}  // namespace motley
