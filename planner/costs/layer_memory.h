#pragma once
// What a stage needs of memory, put together from counts of its layers: static of all, what each
// micro-batch in flight keeps of all, and the largest transient. A search's first word; what a plan
// that is chosen needs is counted rank by rank.

#include <functional>
#include <map>
#include <string>
#include <tuple>
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
  Bytes state{0};      ///< the optimizer's, of `fixed` unless it may lie elsewhere
};

/// Layers on a device of a kind: what is asked of them.
struct LayersToCount {
  DeviceKind device = DeviceKind::kCpu;
  Precision precision = Precision::kFp32;  ///< it computes in
  Recompute recompute = Recompute::kNone;  ///< of blocks
  std::vector<int> micro_batches;          ///< samples
  std::vector<int> heads = {};             ///< of ranks that share their layers by whole heads,
                                           ///< each the first of its stage; empty: whole layers
};

/// By kind of layer ("embedding", "block", "head"), heads (of whole layers all) and micro-batch.
using LayerMemoryTable = std::map<std::tuple<std::string, int, int>, LayerMemory>;

using CountLayers = std::function<Result<LayerMemoryTable>(const LayersToCount& layers)>;

/// Both ways of counting.
struct MemoryCounter {
  CountMemory plan;
  CountLayers layers;
};

}  // namespace motley
