#pragma once
// How much work an engine's passes are, from the programs it would run: nothing is allocated.

#include "core/work_table.h"
#include "worker/engine/engine.h"

namespace motley {

struct CountedWork {
  PassWork forward;
  PassWork backward;
  double sum_bytes = 0;  ///< in all sums over the ranks that share the layers
};

/// Of one micro-batch of `samples`.
CountedWork count_work(const EngineOptions& options, const DeviceTraits& device, int samples);

/// Bytes that the norm of so many elements' gradient and AdamW on them read and write.
double update_bytes(int64_t elements, Precision precision);

}  // namespace motley
