#pragma once
// How many bytes an engine allocates, decided before anything is: create() and estimate_memory()
// both ask here, so that a prediction equals what is then used.

#include "core/profile.h"
#include "worker/engine/stage.h"
#include "worker/engine/updater.h"

namespace motley {

struct MemoryPlan {
  /// `one_memory`: host code reaches what is on the device; else it has views of its own.
  MemoryPlan(const EngineOptions& options, const StageSpec& stage,
             const ParameterLayout& parameters, const ExchangeLayout& exchange,
             const Updater::Memory& update, bool one_memory);

  Bytes parameters{0};
  Bytes gradients{0};
  Bytes optimizer{0};
  Bytes squares{0};  ///< of `optimizer`: sums for the norm
  Bytes exchange{0};
  Bytes host_state{0};
  Bytes managed{0};  ///< of parameters and optimizer what the system may move to the host
  Bytes kept{0};     ///< of one slot: from forward to backward pass
  Bytes arena{0};    ///< shared by all programs and the update
  int slots = 1;
  Bytes slot{0};     ///< one slot's part of `exchange`
  Bytes staging{0};  ///< of the largest sum over the ranks of the stage, where it is not in place
  bool one_memory = true;
  Precision precision = Precision::kFp32;  ///< of the device
  Bytes views{0};    ///< the host's copies, where it does not reach the device
  Bytes rounded{0};  ///< the copy of the parameters in reduced precision
  Bytes scratch{0};  ///< a CPU's own for operations: scratch_bytes()
  bool widens = false;
  int staged_bytes = 0;  ///< of an element of what is summed over them
  int members = 1;       ///< of the ranks that share the stage

  void require(const Program& program);
  MemoryPoint point(int micro_batch) const;
  MemoryEstimate estimate() const;
};

/// The stage an engine of these options computes.
StageSpec stage_spec(const EngineOptions& options, const DeviceTraits& device);

}  // namespace motley
