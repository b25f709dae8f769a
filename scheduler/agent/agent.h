#pragma once
// What runs on each machine of the service: it offers the machine's devices to the coordinator,
// says twice a second that it is there, and runs the commands of attempts that have devices here
// (core/FORMATS.md, "service API").

#include <map>
#include <string>

#include "core/result.h"
#include "core/spec/fleet_spec.h"
#include "scheduler/service/service_client.h"

namespace motley {

struct AgentOptions {
  std::string address;  ///< of the coordinator, to tell agents of several apart
  std::string name;     ///< of the node
  FleetSpec fleet;      ///< its devices
  std::map<std::string, std::string> labels;
};

/// Until SIGTERM or SIGINT: 0; nothing of attempts is left then. Main thread only. kNoDevice where
/// no coordinator answers within ten seconds, later it is waited for; kNotPermitted where another
/// agent has the name.
Result<int> run_agent(const ServiceClient& client, AgentOptions options);

/// Devices of `fleet` as those of the node `name`: all where it is this machine's own fleet, else
/// those of the host of that name (kNoDevice without one).
Result<FleetSpec> fleet_of_node(FleetSpec fleet, const std::string& name, bool own_fleet);

}  // namespace motley
