#pragma once
// Which of devices that are alike a replica gets: those of one host, where one has enough of them.

#include <vector>

#include "planner/pipelines/pipeline_costs.h"

namespace motley {

/// Of a replica, by stage, the devices that share it.
using PlacedStages = std::vector<std::vector<const DeviceSpec*>>;

/// How many of each group each host has, hosts in the order in which they are filled.
std::vector<std::vector<int>> devices_of_hosts(const std::vector<DeviceGroup>& groups);

/// For each pipeline, each from the first host with room for it; large ones choose first, or as
/// they are listed where fewer go over several hosts then. Of a shared stage all are of one host;
/// nothing where no host has them left.
std::vector<PlacedStages> place_on_hosts(const std::vector<DeviceGroup>& groups,
                                         const PipelineCosts& costs,
                                         const std::vector<const Pipeline*>& pipelines);

/// The stages of a pipeline in another order, to be cut anew.
struct PlacedRow {
  std::vector<int> groups;  ///< as PipelineStage::group
  PlacedStages stages;
};

/// In which order a pipeline goes over its hosts.
enum class HostOrder {
  kLine,  ///< host after host
  kRing   ///< the same, but half of the stages of one come first, half last: only it has what is
          ///< tied; a line where no host has two
};

/// Each over all of so many hosts that follow each other: a host has much the same layers of all
/// pipelines, so that of gradients less goes over its link, of activations more. Nothing where that
/// has no room.
std::vector<PlacedRow> place_over_hosts(const std::vector<DeviceGroup>& groups,
                                        const PipelineCosts& costs,
                                        const std::vector<const Pipeline*>& pipelines, size_t hosts,
                                        HostOrder order);

}  // namespace motley
