#pragma once
// How many bytes an engine allocates, decided before anything is: create() and estimate_memory()
// both ask here, so that a prediction equals what is then used.

#include "core/profile.h"
#include "worker/engine/stage.h"

namespace motley {

struct MemoryPlan {
  MemoryPlan(const StageSpec& stage, const ParameterLayout& parameters,
             const ExchangeLayout& exchange);

  Bytes parameters{0};  ///< also of each of the optimizer's two moments
  Bytes gradients{0};
  Bytes exchange{0};
  Bytes arena{0};  ///< shared by all programs and the update; grows with require_arena()

  void require_arena(Bytes bytes);
  MemoryPoint point(int micro_batch) const;
};

/// Elements converted from fixed point at a time during an update: bounds the scratch it needs.
inline constexpr int64_t kUpdateChunk = 1 << 18;

}  // namespace motley
