#pragma once
// JobSpec and FleetSpec as JSON (job.json, fleet.json of a run; what workers read). Formats:
// core/FORMATS.md.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/spec/fleet_spec.h"
#include "core/spec/job_spec.h"

namespace motley {

nlohmann::json to_json(const JobSpec& job);
nlohmann::json to_json(const FleetSpec& fleet);
nlohmann::json to_json(const ModelSpec& model);
nlohmann::json to_json(const DeviceSpec& device);
Result<JobSpec> job_from_json(const nlohmann::json& json);
Result<FleetSpec> fleet_from_json(const nlohmann::json& json);
Result<ModelSpec> model_from_json(const nlohmann::json& json);
Result<DeviceSpec> device_from_json(const nlohmann::json& json);

/// Of train.precision: a word, or one for each type of device.
nlohmann::json precision_json(const TrainSpec& train);

}  // namespace motley
