#pragma once
// The keys of a job that say which devices it may have: resources and any_of.

#include <vector>

#include "core/spec/job_spec.h"
#include "core/spec/yaml_keys.h"

namespace motley {

struct ResourcesDraft {
  DeviceFilter devices;
};

const YamlKeys<ResourcesDraft>& resources_keys();

/// any_of: [{count: 2, types: [H100]}, {count: 8, types: [A100]}]
Result<std::vector<DeviceFilter>> to_alternatives(const YamlNode& node);

}  // namespace motley
