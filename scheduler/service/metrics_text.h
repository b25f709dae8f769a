#pragma once

#include <string>

#include "scheduler/service/coordinator.h"
#include "scheduler/service/fleet_view.h"

namespace motley {

/// What Prometheus reads (text format 0.0.4).
std::string metrics_text(const Coordinator& coordinator, const FleetView& fleet);

}  // namespace motley
