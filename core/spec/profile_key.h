#pragma once
// What a profile depends on besides its devices: worker and profile cache must agree on it.

#include <string>

#include "core/spec/job_spec.h"

namespace motley {

/// The job's model, precision, numerics and optimizer type, as a JSON object in text.
std::string profile_job(const JobSpec& job);

/// Hash of that: equal keys, equal curves.
std::string profile_job_key(const JobSpec& job);

/// Micro-batches are measured up to this size, where they fit. It is not in the key: a profile also
/// serves jobs that need less (core/spec/profile_fit.h).
int largest_profiled_micro_batch(const JobSpec& job);

/// "0.1.0 (git describe)": profiles, plans and checkpoints name the code that made them.
std::string code_version();

}  // namespace motley
