#pragma once
// Which devices of a host could share a stage, and how.

#include <vector>

#include "planner/pipelines/pipeline_costs.h"
#include "planner/request.h"

namespace motley {

inline constexpr int kMostSharing = 8;

struct TensorSets {
  std::vector<TensorSet> sets;  ///< more devices before fewer
  bool all = true;              ///< that could be in a quicker plan
};

/// Of devices of one host that compute in one precision: every number of each group, of very many
/// the smaller ones, with all shares of whole heads or, where `most` is exceeded, those that
/// balance each kind of layer, all layers, and memory. Without those with which no plan takes less
/// than `quickest` seconds.
TensorSets tensor_sets(const PlanRequest& request, const std::vector<DeviceGroup>& groups,
                       const PipelineCosts& costs, const std::vector<int>& micro_batches,
                       double quickest, size_t most);

}  // namespace motley
