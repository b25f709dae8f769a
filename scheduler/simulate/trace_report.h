#pragma once
// What people and programs read of a simulated trace.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/spec/fleet_spec.h"
#include "scheduler/simulate/trace_simulation.h"

namespace motley {

struct PolicyOutcome {
  std::string policy;
  TraceOutcome outcome;
};

/// Devices by type, in the order of the fleet.
std::vector<Pool> pools_of(const FleetSpec& fleet);

/// A row for each policy.
std::string trace_table(const std::vector<PolicyOutcome>& outcomes);
/// core/FORMATS.md, "trace".
nlohmann::json to_json(const PolicyOutcome& outcome);

}  // namespace motley
