#pragma once
// Whether memory matters at all.

#include "planner/costs/layer_memory.h"

namespace motley {

/// True where each admitted device has room for the whole model twice over, with as many
/// micro-batches in flight, however large, as a pipeline could have: computing blocks again and
/// state in host memory help nothing then. What the counter fails with.
Result<bool> is_memory_ample(const PlanRequest& request, const MemoryCounter& counter);

}  // namespace motley
