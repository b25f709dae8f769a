#pragma once
// Which devices of a host could share a stage, and how.

#include <vector>

#include "planner/pipelines/pipeline_space.h"

namespace motley {

inline constexpr int kMostSharing = 8;

struct SharingDevices {
  std::vector<GroupCounts> of_groups;  ///< devices that could share a stage, each number once
  bool all = true;                     ///< of an island with very many ways not: the smaller ones
};

/// Of one host, in one precision, of which all shares were measured; as many as the job wants.
SharingDevices sharing_devices(const PipelineSpace& space, const PipelineCosts& costs);

/// Those with which a plan may take less than `quickest` seconds.
SharingDevices sharing_devices(const PipelineSpace& space, const PipelineCosts& costs,
                               double quickest);

/// No plan that shares a stage takes less, were memory and sums of gradients free; kNever where
/// none may.
double least_seconds_sharing(const PipelineSpace& space, const PipelineCosts& costs);

struct TensorSets {
  std::vector<TensorSet> sets;  ///< more devices before fewer
  bool all = true;              ///< that could be in a quicker plan
  double least = kNever;        ///< seconds: no quicker plan that shares a stage takes less
};

/// Of the devices with which a plan may take less than `quickest` seconds, all shares of whole
/// heads or, where `most` sets are exceeded, of the devices that lose least those shares that
/// balance each kind of layer, all layers, and memory.
TensorSets tensor_sets(const PipelineSpace& space, const PipelineCosts& costs, double quickest,
                       size_t most);

}  // namespace motley
