#pragma once
// What a stage of a row of devices costs in a step, by how many layers it has.

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "planner/pipelines/pipeline_costs.h"

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

/// Stages of steps of so many samples in such micro-batches, each priced once: of rows of the same
/// devices in other orders many are alike. `costs` must outlive it and stay as they are.
class StageCosts {
 public:
  struct Known {
    AlikePasses passes;
    StageCost cost;
  };
  /// By layers, 1 on; those that are missing do not fit. Only the first stage has the embedding
  /// and only the last the head, so that which blocks they are makes no difference.
  using ByLayers = std::vector<Known>;

  StageCosts(const PipelineCosts& costs, int micro_batch, int samples)
      : costs_(costs), micro_batch_(micro_batch), samples_(samples) {}

  const PipelineCosts& costs() const { return costs_; }
  int micro_batch() const { return micro_batch_; }
  int samples() const { return samples_; }
  int micro_batches() const { return (samples_ + micro_batch_ - 1) / micro_batch_; }

  /// Of stage `number` of `stages`, the others of which have a layer each at least, on the devices
  /// of a group or tensor set. Valid as long as this is.
  const ByLayers& of(int group, int number, int stages);

  /// Seconds that the busiest stage of a row works at least: as if blocks could be divided, and
  /// all had room for what falls to them. 0: not known, or nothing.
  double least_of_busiest(const std::vector<int>& row);

 private:
  /// Seconds of a step that layers take their stage at least.
  struct Least {
    double block = 0;                ///< of a group that was not measured 0
    double embedding = 0, head = 0;  ///< of a tensor set 0
  };
  ByLayers find(int group, int number, int stages) const;
  const Least& least(int group);
  double seconds(const PipelineStage& stage) const;

  const PipelineCosts& costs_;
  const int micro_batch_, samples_;
  std::map<std::tuple<int, int, int>, ByLayers> known_;
  std::map<int, Least> least_;  ///< by group
};

}  // namespace motley
