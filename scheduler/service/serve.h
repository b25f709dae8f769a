#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/spec/fleet_spec.h"
#include "scheduler/service/endpoint.h"

namespace motley {

struct ServeOptions {
  std::string state;               ///< directory
  std::string socket;              ///< path
  std::optional<Endpoint> listen;  ///< for others, over TLS
  std::vector<std::string> names;  ///< of this machine, besides those that it knows itself
  FleetSpec fleet;                 ///< its own; nodes add theirs
  std::string policy = "backfill";
  std::map<std::string, double> weights = {};  ///< of owners' fair shares; others: 1
  int user_priority = 50;  ///< the highest that tokens of the role user may give a job
  Bytes log_limit{0};      ///< of what an attempt prints; 0: none
  Nanos keep{0};           ///< what has ended, and events; 0: for ever
};

/// The coordinator of this machine, until SIGTERM or SIGINT: 0. What runs then runs on, and is
/// found by the next one. Main thread only. kNotPermitted where another coordinator has the state
/// or the socket.
Result<int> serve(ServeOptions options);

}  // namespace motley
