#pragma once
// What a plan asks of one rank in every step.

#include <vector>

#include "core/device_islands.h"
#include "core/plan.h"
#include "core/spec/job_spec.h"
#include "worker/engine/engine.h"
#include "worker/train/slice_classes.h"

namespace motley {

struct RankShare {
  std::vector<SampleRange> micro_batches;  ///< of a step's global batch, in order
  std::vector<SampleRange> evaluation;     ///< of the held-out samples
  std::vector<int> sizes;  ///< of micro-batches, each once, the largest first: what to compile
  int in_flight = 1;       ///< micro-batches between forward and backward pass at once

  int samples() const;
  int largest() const { return sizes.front(); }
};

/// Of a valid plan. The held-out samples are dealt as if they were training batches, so that each
/// replica's share of both is the same; in exact in single grains.
RankShare share_of(const Plan& plan, Rank rank, int evaluation_samples);

/// Whether some rank computes in fp16, for which all scale the loss.
bool scales_loss(const Plan& plan);

/// What `rank` of a valid plan builds, with these islands of its group's part (core/sync_groups.h);
/// memory_limit and group are for those who run it.
EngineOptions engine_options(const JobSpec& job, const Plan& plan, Rank rank,
                             const DeviceIslands& islands = {});

/// A rank among those that train together with it.
struct RankOfGroup {
  PlanClasses& classes;  ///< of the group's part
  Rank self;             ///< its number there
};
/// The same where the group's classes are known.
EngineOptions engine_options(const JobSpec& job, const Plan& plan, Rank rank,
                             const RankOfGroup& in_group);

}  // namespace motley
