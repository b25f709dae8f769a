#pragma once
// What plans would be, were memory free.

#include "core/spec/job_spec.h"
#include "planner/costs/layer_memory.h"

namespace motley {

/// Counts no bytes of anything.
MemoryCounter free_memory(const ModelSpec& model);

}  // namespace motley
