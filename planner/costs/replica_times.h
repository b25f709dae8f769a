#pragma once
// A step of one replica, however it is cut: its stages' times for the event simulation
// (planner/costs/pipeline_simulation.h).

#include <vector>

#include "core/plan.h"
#include "planner/costs/pipeline_simulation.h"
#include "planner/request.h"

namespace motley {

struct ReplicaTimes {
  std::vector<StageTimes> stages;
  /// Seconds that each rank computes in a step, by stage and member.
  std::vector<std::vector<double>> compute;
};

/// `ready` says, by rank, when in seconds from the step's begin it is free for it. kInvalidSpec
/// with the JSON pointer of the stage when the profile lacks a curve.
Result<ReplicaTimes> replica_times(const PlanRequest& request, const Plan& plan, int replica,
                                   const std::vector<double>& ready);

/// One rank for the whole model, computing nothing twice: what the curve "model" was measured of.
bool is_plain(const ReplicaPlan& replica);

}  // namespace motley
