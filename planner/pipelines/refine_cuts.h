#pragma once
// What a search for pipelines cannot see of each by itself: messages that share a link, and sums of
// gradients. A plan is changed little by little by what its whole step takes.

#include "core/plan.h"
#include "core/result.h"
#include "planner/plain/search.h"
#include "planner/request.h"

namespace motley {

/// Changes a plan that is cut as long as predict() says that its step takes clearly less and every
/// rank's counted bytes fit. Ends of stages are moved by a layer, one or two, of all replicas with
/// as many stages at once: one alone would only have a host exchange one layer more. Of more than
/// eight ranks that is all, where links take much of the step. Of up to eight devices of two stages
/// are exchanged, too, neighbouring stages change places, a device that is left out has a stage
/// instead of another, a stage is given up, a grain is given to another replica, what a replica
/// computes is parted into micro-batches of like size, as many, one more or one fewer, a stage and
/// the next are put together and shared, and a device that shares one stage shares another; of up
/// to four each of these together with a moved end, and ends are moved of each replica alone.
/// Owners, prediction, search record and id are made anew. `plan`: each holder keeps all its state,
/// on its device or, where `may_be_in_host`, in host memory for want of room.
Result<Unit> refine_cuts(const PlanRequest& request, const CountMemory& count, Plan* plan,
                         bool may_be_in_host = false);

}  // namespace motley
