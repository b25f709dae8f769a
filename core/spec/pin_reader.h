#pragma once
// The section `pin` of a job.

#include "core/spec/pin_spec.h"
#include "core/spec/yaml_keys.h"

namespace motley {

/// What concerns other keys, the model or the fleet is checked by pin_fault() and
/// check_pinned_devices().
const YamlKeys<PinSpec>& pin_keys();

}  // namespace motley
