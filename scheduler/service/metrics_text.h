#pragma once

#include <string>

#include "scheduler/service/coordinator.h"

namespace motley {

/// What Prometheus reads (text format 0.0.4).
std::string metrics_text(const Coordinator& coordinator);

}  // namespace motley
