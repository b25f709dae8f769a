#pragma once
// What a plan computes twice for want of memory is made less again.

#include "core/plan.h"
#include "core/result.h"
#include "planner/plain/search.h"
#include "planner/request.h"

namespace motley {

/// Of each stage, as many of its last blocks as fit keep what they computed
/// instead of computing it again; by halving, all stages at once, each try counted. Prediction,
/// search record and id are made anew.
Result<Unit> recompute_less(const PlanRequest& request, const CountMemory& count, Plan* plan);

/// Whether a layer is neither embedding nor head.
inline bool is_block(LayerIndex layer, const ModelSpec& model) {
  return layer > 0 && layer <= model.layers;
}

/// Whether any block does.
bool computes_again(const Plan& plan);

}  // namespace motley
