#pragma once
// The order in which a pipeline's stages work: 1F1B (Narayanan et al. 2019, PipeDream-Flush).

#include <vector>

namespace motley {

/// One micro-batch forward or backward through one stage.
struct PipelineAction {
  bool backward = false;
  int micro_batch = 0;

  bool operator==(const PipelineAction&) const = default;
};

/// Micro-batches whose forward pass waits for its backward pass at `stage`, at most: what it must
/// keep activations for.
int most_in_flight(int stages, int stage, int micro_batches);

/// What stage `stage` of `stages` does in a step: forward passes until most_in_flight() are under
/// way, then one backward and one forward in turn, then the rest backward. Each stage runs its list
/// in order, waiting for what the neighbours send; no list can wait for a later entry of another.
std::vector<PipelineAction> one_forward_one_backward(int stages, int stage, int micro_batches);

}  // namespace motley
