#pragma once
// Where replicas are cut over the same hosts, all of them elsewhere: one replica alone would only
// have a host exchange one layer more.

#include "core/plan.h"
#include "core/result.h"
#include "planner/plain/search.h"
#include "planner/request.h"

namespace motley {

/// Moves the ends of stages by a layer, of all replicas with as many stages at once, one end or two
/// of them, as long as predict() says that the step takes clearly less and every rank's counted
/// bytes fit. Owners, prediction, search record and id are made anew. Nothing is changed where
/// gradients take little of the step. `plan`: each holder keeps all its state on its device.
Result<Unit> shift_cuts(const PlanRequest& request, const CountMemory& count, Plan* plan);

}  // namespace motley
