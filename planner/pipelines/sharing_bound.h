#pragma once
// How quick plans could be at best that share stages: as those of planner/pipelines/step_bound.h
// with a device a stage, each of which stands for the devices that share it. They are as quick as
// all of them at best, and hold what they like, but the others are missing elsewhere.

#include "planner/pipelines/pipeline_space.h"

namespace motley {

/// No plan that shares a stage and is quicker than `step` takes less. `costs`: before anything was
/// learnt of memory.
double bound_of_sharing(const PipelineSpace& space, const PipelineCosts& costs, double step);

}  // namespace motley
