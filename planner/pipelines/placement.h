#pragma once
// Which of devices that are alike a replica gets: those of one host, where one has enough of them.

#include <vector>

#include "planner/pipelines/pipeline_costs.h"

namespace motley {

/// For each pipeline the devices of its stages; large ones choose first, hosts in fleet order.
std::vector<std::vector<const DeviceSpec*>> place_on_hosts(
    const std::vector<DeviceGroup>& groups, const std::vector<const Pipeline*>& pipelines);

}  // namespace motley
