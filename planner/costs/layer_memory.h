#pragma once
// What a stage needs of memory, put together from counts of its layers: static of all, what each
// micro-batch in flight keeps of all, and the largest transient. A search's first word; what a plan
// that is chosen needs is counted rank by rank.

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/result.h"
#include "core/spec/fleet_spec.h"
#include "planner/plain/search.h"

namespace motley {

/// Bytes of one layer at one micro-batch, as `motley-worker estimate --layers` counts them.
struct LayerMemory {
  Bytes fixed{0};      ///< parameters, gradients, optimizer state
  Bytes saved{0};      ///< of a micro-batch from its forward to its backward pass
  Bytes transient{0};  ///< within a pass
  Bytes state{0};      ///< of `fixed`, the optimizer's
};

/// By kind of layer ("embedding", "block", "head") and micro-batch.
using LayerMemoryTable = std::map<std::pair<std::string, int>, LayerMemory>;

/// Counts layers on a device of a kind that computes in a precision, and what blocks compute again.
using CountLayers = std::function<Result<LayerMemoryTable>(DeviceKind device, Precision precision,
                                                           Recompute recompute,
                                                           const std::vector<int>& micro_batches)>;

/// Both ways of counting.
struct MemoryCounter {
  CountMemory plan;
  CountLayers layers;
};

}  // namespace motley
