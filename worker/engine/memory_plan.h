#pragma once
// How many bytes an engine allocates, decided before anything is: create() and estimate_memory()
// both ask here, so that a prediction equals what is then used.

#include "core/profile.h"
#include "worker/engine/stage.h"
#include "worker/engine/updater.h"

namespace motley {

struct MemoryPlan {
  MemoryPlan(const StageSpec& stage, const ParameterLayout& parameters,
             const ExchangeLayout& exchange, const Updater::Memory& update);

  Bytes parameters{0};
  Bytes gradients{0};
  Bytes optimizer{0};
  Bytes exchange{0};
  Bytes kept{0};   ///< of one slot: from forward to backward pass
  Bytes arena{0};  ///< shared by all programs and the update
  int slots = 1;
  Bytes slot{0};  ///< one slot's part of `exchange`

  void require(const Program& program);
  MemoryPoint point(int micro_batch) const;
  MemoryEstimate estimate() const;
};

/// The stage an engine of these options computes. `exact_exponent` is read when programs run.
StageSpec stage_spec(const EngineOptions& options, int element_bytes, int threads,
                     const int* exact_exponent);

}  // namespace motley
