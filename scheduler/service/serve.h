#pragma once

#include <memory>
#include <string>

#include "core/result.h"
#include "core/spec/fleet_spec.h"

namespace motley {

struct ServeOptions {
  std::string state;   ///< directory
  std::string socket;  ///< path
  FleetSpec fleet;
  std::string policy = "backfill";
};

/// The coordinator of this machine, until SIGTERM or SIGINT: 0. What runs then runs on, and is
/// found by the next one. Main thread only. kNotPermitted where another coordinator has the state
/// or the socket.
Result<int> serve(ServeOptions options);

}  // namespace motley
