#pragma once
// The quickest pipeline of a set of devices, over all orders and cuts: depth first, what may be
// quickest first, with the bounds of planner/pipelines/set_cuts.h on the stages to come.

#include "planner/pipelines/pipeline_cut.h"
#include "planner/pipelines/set_cuts.h"

namespace motley {

struct SetCutProblem {
  const PipelineCosts& costs;
  const SetLattice& sets;
  SetCuts& cuts;  ///< of the micro-batch and the samples
  int micro_batch = 0;
  int samples = 0;
};

/// Of two stages and more, as many as its devices but where some may share; quicker than `cutoff`
/// seconds.
PipelineCut best_cut_of_set(const SetCutProblem& problem, size_t set, int stages, double cutoff,
                            int64_t most_nodes);

}  // namespace motley
