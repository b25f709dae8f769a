#pragma once
// What a pipeline's step takes, event by event: 1F1B (core/pipeline.h; Narayanan et al. 2019,
// "PipeDream: Generalized Pipeline Parallelism for DNN Training") with each stage beginning what is
// next on its list as soon as it is free and what it waits for has arrived. Sends keep nobody from
// working. Whole nanoseconds: the same result everywhere. Pure; meant for planning and for fleets
// nobody has here.

#include <vector>

#include "core/ids.h"
#include "core/pipeline.h"

namespace motley {

/// How long one stage works in a step.
struct StageTimes {
  /// Of each micro-batch, by number; as many forward as backward, on every stage of a replica.
  std::vector<Nanos> forward;
  std::vector<Nanos> backward;
  /// When it is free for the step: after the update of the step before.
  Nanos ready{0};
  /// From the end of a pass until what it sends has arrived at the neighbour.
  Nanos forward_travels{0};
  Nanos backward_travels{0};
};

struct TimedAction {
  PipelineAction action;
  Nanos begin{0};
  Nanos end{0};
};

struct StageTimeline {
  std::vector<TimedAction> actions;  ///< in the order of one_forward_one_backward()
  Nanos busy{0};                     ///< in its actions
  Nanos idle{0};                     ///< from `ready` until the replica's last action ends
};

/// All times count from the step's begin.
struct PipelineTimeline {
  std::vector<StageTimeline> stages;
  Nanos end{0};  ///< of the last action of any stage
};

/// A step of one replica, of at least one stage.
PipelineTimeline simulate_pipeline(const std::vector<StageTimes>& stages);

/// Until the slowest replica is through. Sums over replicas come after it.
Nanos simulate_step(const std::vector<std::vector<StageTimes>>& replicas);

}  // namespace motley
