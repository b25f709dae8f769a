#pragma once
// How quick plans could be at best that share stages, whichever of two bounds of
// planner/pipelines/step_bound.h is higher. In one each set of devices of a host is a group of its
// own: what its layers take at least however they are shared, all its memory, any of its devices in
// any number of stages. In the other a device a stage stands for those that share it: as quick as
// all of them at best, holding what they like, but the others are missing elsewhere. Plans are
// looked at by how many devices there are besides one of each stage, since the more they are, the
// less of what is tied has each to exchange.

#include "planner/pipelines/pipeline_space.h"

namespace motley {

/// No plan that shares a stage and is quicker than `step` takes less. `costs`: before anything was
/// learnt of memory.
double bound_of_sharing(const PipelineSpace& space, const PipelineCosts& costs, double step);

}  // namespace motley
