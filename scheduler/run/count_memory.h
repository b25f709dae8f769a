#pragma once
// What `motley-worker estimate` counts, without hardware: all byte counts come from it.

#include <vector>

#include "core/plan.h"
#include "core/result.h"
#include "core/spec/fleet_spec.h"
#include "core/spec/job_spec.h"
#include "planner/costs/layer_memory.h"
#include "planner/request.h"

namespace motley {

/// Bytes of each rank of a plan without open faults.
Result<std::vector<RankMemory>> count_memory(const Plan& plan, const JobSpec& job,
                                             const FleetSpec& fleet);

/// The same of a plan of GPUs, by what they are for.
struct MemoryParts {
  Bytes parameters{0};  ///< with their copies in reduced precision
  Bytes gradients{0};
  Bytes optimizer{0};
  Bytes activations{0};  ///< kept between passes, and within one
  Bytes total{0};        ///< these, samples and losses
  Bytes host{0};         ///< in host memory besides
};
Result<std::vector<MemoryParts>> count_memory_parts(const Plan& plan, const JobSpec& job,
                                                    const FleetSpec& fleet);

/// Bytes of single layers.
Result<LayerMemoryTable> count_layers(const JobSpec& job, const LayersToCount& layers);

/// Both, for searches: layers once for all devices alike, a plan once. `request` outlives it.
MemoryCounter memory_counter(const PlanRequest& request);

}  // namespace motley
