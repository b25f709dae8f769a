#include "planner/costs/held_elements.h"

#include <algorithm>

#include "core/holdings.h"

namespace motley {

int64_t HeldElements::of(const StagePlan& stage, int member) {
  const auto [found, is_new] = known_.try_emplace({stage.shares, member});
  if (is_new) found->second = parts_of(stage.shares, member);
  const Parts& parts = found->second;
  const LayerIndex head = layer_count(model_) - 1;
  const bool has_embedding = stage.first_layer == 0, has_head = stage.last_layer == head;
  const int blocks = std::min(stage.last_layer, head - 1) - std::max(stage.first_layer, 1) + 1;
  return (has_embedding ? parts.embedding : 0) + blocks * parts.block +
         (has_head ? parts.head : 0) - (has_embedding && has_head ? parts.tied : 0);
}

HeldElements::Parts HeldElements::parts_of(const std::vector<double>& shares, int member) const {
  ModelSpec small = model_;
  small.layers = 1;
  const auto held = [&](LayerIndex first, LayerIndex last) {
    StagePlan stage;
    stage.first_layer = first;
    stage.last_layer = last;
    stage.shares = shares;
    int64_t elements = 0;
    for (const Holding& holding : holdings_of(small, stage, member))
      elements += holding.slice.elements();
    return elements;
  };
  Parts parts{.embedding = held(0, 0), .block = held(1, 1), .head = held(2, 2)};
  parts.tied = parts.embedding + parts.block + parts.head - held(0, 2);
  return parts;
}

}  // namespace motley
