#pragma once
// What a plan asks of one rank in every step.

#include <vector>

#include "core/plan.h"

namespace motley {

struct RankShare {
  int replica = 0;
  std::vector<SampleRange> micro_batches;  ///< of a step's global batch, in order
  std::vector<SampleRange> evaluation;     ///< of the held-out samples
  std::vector<int> sizes;  ///< of micro-batches, each once, the largest first: what to compile

  int samples() const;
  int largest() const { return sizes.front(); }
};

/// The held-out samples are dealt as if they were training batches, so that each rank's share of
/// both is the same; in exact in single grains. kUnsupported when the rank computes only a part of
/// the model.
Result<RankShare> share_of(const Plan& plan, Rank rank, int evaluation_samples);

}  // namespace motley
