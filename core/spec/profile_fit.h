#pragma once
// Whether what was measured may serve a job on a fleet.

#include <functional>
#include <optional>
#include <string>

#include "core/profile.h"
#include "core/spec/device_identity.h"
#include "core/spec/fleet_spec.h"
#include "core/spec/job_spec.h"

namespace motley {

/// What is known of the machine of a device.
using MachineOf = std::function<Machine(const DeviceSpec&)>;

/// Why the profile cannot serve: it is of another job (model, precision, numerics, optimizer),
/// lacks a device of the fleet or is of another one. Nothing when it can. A device whose identity
/// was written by hand (not a JSON object) is judged by its type.
std::optional<std::string> misfit(const Profile& profile, const JobSpec& job,
                                  const FleetSpec& fleet, const MachineOf& machine_of);

/// The largest micro-batch that all devices were considered for; 0 without devices.
int measured_micro_batches(const Profile& profile);

}  // namespace motley
