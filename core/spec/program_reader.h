#pragma once
// The keys of a job that is a program: run, workdir, env, setup.

#include "core/spec/job_spec.h"
#include "core/spec/yaml_keys.h"

namespace motley {

const YamlKeys<ProgramSpec>& program_keys();

/// Whether the job is a program, and nothing in it is of no use to one, or to a model: else an
/// error at that key.
Result<bool> is_program(const YamlNode& job);

}  // namespace motley
