#pragma once
// What a simulation takes for the speeds of a fleet's devices: what was measured of them, or else
// figures of the catalog and the worker's counts of work and memory.

#include <string>
#include <vector>

#include "core/profile.h"
#include "core/result.h"
#include "core/spec/device_catalog.h"
#include "core/spec/fleet_spec.h"
#include "core/spec/job_spec.h"

namespace motley {

struct ProfileForSimulation {
  Profile profile;
  std::string source;                ///< "profile", "cache" or "catalog"
  std::vector<std::string> remarks;  ///< where it comes from, in sentences
  std::vector<LinkProfile> assumed;  ///< links that neither the fleet tells nor anybody measured
};

struct SimulationSources {
  std::string profile;  ///< a file; empty: none
  std::string catalog;  ///< a file; empty: the cache if it has all devices, else the built-in one
};

/// Of all devices of `admitted`. Launches nothing but `motley-worker estimate` here.
Result<ProfileForSimulation> profile_for_simulation(const JobSpec& job, const FleetSpec& admitted,
                                                    const SimulationSources& sources);

/// From the catalog, whatever was measured. kInvalidSpec at a device that it says nothing of.
Result<ProfileForSimulation> simulated_profile(const JobSpec& job, const FleetSpec& admitted,
                                               const DeviceCatalog& catalog);

}  // namespace motley
