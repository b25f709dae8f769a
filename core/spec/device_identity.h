#pragma once
// What a device's measurements belong to. Every profile and every look into the cache takes it from
// here, so that both mean the same.

#include <string>

#include "core/profile.h"
#include "core/spec/fleet_spec.h"

namespace motley {

/// What decides speeds and is not in a fleet file. Empty: not known from where one looks.
struct Machine {
  std::string name;       ///< as its system calls it, also where the fleet says "localhost"
  std::string processor;  ///< model of the first CPU
};

/// The machine this process runs on.
Machine this_machine();

/// Text of a JSON object (core/FORMATS.md, "profile"): what the fleet says of the device but its
/// name and price; unless it is paced on the virtual clock, what is known of its machine; for a CPU
/// that is not paced, the threads of all that compute on its host; for a share of a GPU, the sizes
/// of all shares of it.
std::string device_identity(const FleetSpec& fleet, const DeviceSpec& device,
                            const Machine& machine);

/// Which kind of result (DESIGN.md §4) its times are.
Evidence evidence_of(const DeviceSpec& device);

/// Why measurements of `measured` are not those of `wanted`, both from device_identity(): "threads
/// is 4 in the profile, 2 here". Empty when they are: what `wanted` does not know may be anything.
std::string identity_difference(const std::string& measured, const std::string& wanted);

}  // namespace motley
