#pragma once
// What a job pins must make a plan: with the model, with the rest of the job, with the fleet.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/plan.h"
#include "core/result.h"
#include "core/spec/fleet_spec.h"
#include "core/spec/job_spec.h"

namespace motley {

/// The first contradiction within `pin` and with the job's other keys, as first_fault() gives it.
std::optional<SpecFault> pin_fault(const JobSpec& job);

/// The devices of the pinned replicas, each with its key: "pin.replicas.0.stages.1.devices.0".
std::vector<std::pair<std::string, std::string>> pinned_devices(const PinSpec& pin);

/// kNoDevice, at the job's words, for a pinned device that is not in the fleet or that the job
/// excludes.
Result<Unit> check_pinned_devices(const JobSpec& job, const FleetSpec& fleet);

/// The stage that a pin describes, whose ranks are numbered from `first_rank` on and whose
/// precision is as written.
StagePlan pinned_stage_plan(const PinnedStage& pinned, const ModelSpec& model, int first_rank);

}  // namespace motley
