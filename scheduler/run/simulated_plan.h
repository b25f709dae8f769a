#pragma once
// The plan of a fleet that nobody has here.

#include <functional>

#include "planner/request.h"
#include "scheduler/run/simulated_profile.h"

namespace motley {

/// What is taken for the speeds of these devices.
using ProfileOf = std::function<Result<ProfileForSimulation>(const FleetSpec& admitted)>;

struct SimulatedPlan {
  ProfileForSimulation from;  ///< of the devices that the plan could use
  Plan plan;
};

/// That of find_plan() for the devices of `fleet` that the job admits. Of unlike cards that share a
/// host nothing is assumed but that they reach each other through it, those of one type by links of
/// their own; so where links are assumed it is the quickest of all choices to keep, on each such
/// host, all cards or those of one type, each as if the others were not there. Where these are too
/// many, hosts that are alike keep the same; if they still are, all that have it the same type.
Result<SimulatedPlan> plan_simulated(const JobSpec& job, const FleetSpec& fleet,
                                     const ProfileOf& profile_of);

}  // namespace motley
