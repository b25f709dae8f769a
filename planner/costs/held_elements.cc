#include "planner/costs/held_elements.h"

#include <algorithm>

#include "core/holdings.h"

namespace motley {

HeldByKind held_by_kind(const ModelSpec& model, const std::vector<double>& shares, int member) {
  ModelSpec small = model;
  small.layers = 1;
  HeldByKind held;
  int64_t* const kinds[] = {&held.embedding, &held.block, &held.head};
  for (LayerIndex layer = 0; layer < layer_count(small); ++layer) {
    StagePlan stage;
    stage.first_layer = stage.last_layer = layer;
    stage.shares = shares;
    for (const Holding& holding : holdings_of(small, stage, member)) {
      const bool is_tied = holding.tensor.layers.size() > 1;
      (is_tied ? held.tied : *kinds[layer]) += holding.slice.elements();
    }
  }
  held.tied /= 2;  // embedding and head were both asked
  return held;
}

int64_t HeldElements::of(const StagePlan& stage, int member) {
  const auto [found, is_new] = known_.try_emplace({stage.shares, member});
  if (is_new) found->second = held_by_kind(model_, stage.shares, member);
  const HeldByKind& held = found->second;
  const LayerIndex head = layer_count(model_) - 1;
  const bool has_embedding = stage.first_layer == 0, has_head = stage.last_layer == head;
  const int blocks = std::min(stage.last_layer, head - 1) - std::max(stage.first_layer, 1) + 1;
  return (has_embedding ? held.embedding : 0) + blocks * held.block + (has_head ? held.head : 0) +
         (has_embedding || has_head ? held.tied : 0);
}

}  // namespace motley
