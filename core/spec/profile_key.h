#pragma once
// What a profile depends on besides its devices: worker and profile cache must agree on it.

#include <string>

#include "core/spec/job_spec.h"

namespace motley {

/// Hash of the job's model, precision, numerics and optimizer type: equal keys, equal curves.
std::string profile_job_key(const JobSpec& job);

/// "0.1.0 (git describe)": profiles, plans and checkpoints name the code that made them.
std::string code_version();

}  // namespace motley
