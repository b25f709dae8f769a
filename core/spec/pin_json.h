#pragma once
// What a job pins of its plan, as JSON. Format: core/FORMATS.md.

#include <nlohmann/json_fwd.hpp>

#include "core/json_fields.h"
#include "core/spec/pin_spec.h"

namespace motley {

nlohmann::json to_json(const PinSpec& pin);

/// An object that to_json() wrote. What contradicts the job is left to pin_fault().
void read_pin(JsonFields& fields, PinSpec& pin);

}  // namespace motley
