#pragma once
// Where to cut the layers for devices in a given order: depth first over the ends of stages, with
// the bound of each stage (what comes before its first forward pass, its own work, what comes after
// its last backward pass) and of the busiest of the stages still to come.

#include <cstdint>
#include <vector>

#include "planner/pipelines/stage_costs.h"
#include "planner/plain/grain_table.h"

namespace motley {

struct PipelineCut {
  Pipeline pipeline;
  double seconds = kNever;  ///< kNever: none fits, or none is below the cutoff
  bool proved = true;       ///< no other is quicker; false: the nodes ran out
  int64_t nodes = 0;        ///< stages placed
};

/// The quickest pipeline of one device a stage, by group in the order of stages, for the samples
/// and in the micro-batches of `known`; of equally quick ones the first found.
PipelineCut best_cut(StageCosts* known, const std::vector<int>& order, double cutoff,
                     int64_t most_nodes);

/// The same of any of these micro-batches, rising, up to `most_micro_batch` or, where none of those
/// fits, the next that does; without stages where none does.
Pipeline quickest_cut(const PipelineCosts& costs, const std::vector<int>& order,
                      const std::vector<int>& micro_batches, int most_micro_batch, int samples,
                      int64_t most_nodes);

}  // namespace motley
