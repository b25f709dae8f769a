#pragma once
// The keys of a job that only the job service goes by.

#include "core/spec/job_spec.h"
#include "core/spec/yaml_keys.h"

namespace motley {

const YamlKeys<ServiceSpec>& service_keys();

}  // namespace motley
