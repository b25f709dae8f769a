#pragma once
// Which of devices that are alike a replica gets: those of one host, where one has enough of them.

#include <vector>

#include "planner/pipelines/pipeline_costs.h"

namespace motley {

/// Of a replica, by stage, the devices that share it.
using PlacedStages = std::vector<std::vector<const DeviceSpec*>>;

/// For each pipeline; large ones choose first, hosts in fleet order. Of a shared stage all are of
/// one host; nothing where no host has them left.
std::vector<PlacedStages> place_on_hosts(const std::vector<DeviceGroup>& groups,
                                         const PipelineCosts& costs,
                                         const std::vector<const Pipeline*>& pipelines);

}  // namespace motley
