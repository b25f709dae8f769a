#pragma once
// Where to cut the layers for devices in a given order: depth first over the ends of stages, with
// the bound of each stage (what comes before its first forward pass, its own work, what comes after
// its last backward pass) and of the busiest of the stages still to come.

#include <cstdint>
#include <vector>

#include "planner/pipelines/pipeline_costs.h"
#include "planner/plain/grain_table.h"

namespace motley {

/// Of a stage in a step, in nanoseconds.
struct StageCost {
  int64_t work = 0;           ///< for all micro-batches
  int64_t ahead = 0;          ///< part of work, for each that begins before the first ends
  int64_t first_forward = 0;  ///< before the next stage can begin
  int64_t last_backward = 0;  ///< after the next stage has ended
  int64_t ready = 0;          ///< free for the step
};

/// Of stage `number` of `stages`.
StageCost stage_cost(const PipelineCosts& costs, const PipelineStage& stage, int number, int stages,
                     int micro_batch, int samples);

struct PipelineCut {
  Pipeline pipeline;
  double seconds = kNever;  ///< kNever: none fits, or none is below the cutoff
  bool proved = true;       ///< no other is quicker; false: the nodes ran out
  int64_t nodes = 0;        ///< stages placed
};

/// The quickest pipeline of one device a stage, by group in the order of stages, for `samples` of a
/// step in micro-batches of `micro_batch`; of equally quick ones the first found.
PipelineCut best_cut(const PipelineCosts& costs, const std::vector<int>& order, int micro_batch,
                     int samples, double cutoff, int64_t most_nodes);

/// The same of any of these micro-batches, rising, up to `most_micro_batch` or, where none of those
/// fits, the next that does; without stages where none does.
Pipeline quickest_cut(const PipelineCosts& costs, const std::vector<int>& order,
                      const std::vector<int>& micro_batches, int most_micro_batch, int samples,
                      int64_t most_nodes);

}  // namespace motley
