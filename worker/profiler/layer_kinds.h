#pragma once
// One layer of a kind as a stage of its own: what is measured and counted once for all layers
// alike.

#include <string>
#include <vector>

#include "core/plan.h"
#include "core/result.h"
#include "core/spec/job_spec.h"
#include "worker/engine/engine.h"

namespace motley {

/// A kind of layer and how one rank computes it.
struct LayerKind {
  std::string layer;  ///< embedding, block or head
  double share = 1;   ///< below 1: with others, of which this rank is the first
  Recompute recompute = Recompute::kNone;
};

/// kInvalidSpec for another word, or a share of no head, column or row.
Result<Unit> check_layer_kind(const LayerKind& kind, const ModelSpec& model);

/// The engine of a kind that is valid. Where it shares its layer, `group` is still to be set.
EngineOptions layer_engine_options(const JobSpec& job, const LayerKind& kind,
                                   std::vector<int> micro_batches);

}  // namespace motley
