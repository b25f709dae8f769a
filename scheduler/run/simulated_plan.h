#pragma once
// The plan of a fleet that nobody has here.

#include "planner/request.h"
#include "scheduler/run/simulated_profile.h"

namespace motley {

struct SimulatedPlan {
  ProfileForSimulation from;  ///< of the devices that the plan could use
  Plan plan;
};

/// That of find_plan() for the devices of `fleet` that the job admits. Of cards that share a host
/// nothing is assumed but that they reach each other as the slowest of them do; so where unlike
/// ones do, and their links are assumed, it is the quickest of all sets of up to four types, each
/// as if the others were not there.
Result<SimulatedPlan> plan_simulated(const JobSpec& job, const FleetSpec& fleet,
                                     const SimulationSources& sources);

}  // namespace motley
