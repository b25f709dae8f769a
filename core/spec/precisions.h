#pragma once
// What each device computes a job in. Devices that train together add up each other's numbers: in
// full precision they are alike, for activations each may have its own.

#include "core/result.h"
#include "core/spec/fleet_spec.h"
#include "core/spec/job_spec.h"

namespace motley {

/// The kind as which a job drives a device: a CPU computes in float64 where the job wants that.
DeviceKind kind_driven(const JobSpec& job, const DeviceSpec& device);

/// What the job asks of devices of this type: of those it names the one whose name is longest, else
/// train.precision.
Precision precision_wanted(const JobSpec& job, const std::string& type);

/// What the device computes in when it is driven for the job; never kAuto. Where it lacks what the
/// job asks for, what it has.
Precision precision_computed(const JobSpec& job, const DeviceSpec& device);

/// Whether the job leaves to measurements what the device computes in: `auto` on a GPU, unless
/// exact, whose arithmetic comes from the job alone.
bool precision_open(const JobSpec& job, const DeviceSpec& device);

/// What a plan may have the device compute in: where it is open any of 4 bytes or less, `planned`
/// itself; else precision_computed().
Precision precision_allowed(const JobSpec& job, const DeviceSpec& device, Precision planned);

/// Whether the job asks the device for a precision that it has not.
bool lacks_precision(const JobSpec& job, const DeviceSpec& device);

/// kInvalidSpec, at its place in the fleet's file, naming a device that does not compute in the
/// precision the job asks for, or two that differ in full precision (or, in exact, at all).
Result<Unit> check_precisions(const FleetSpec& fleet, const JobSpec& job);

}  // namespace motley
