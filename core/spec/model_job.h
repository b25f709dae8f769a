#pragma once
// A job of which nothing is known but its model: for questions that neither data nor steps decide.

#include <string>
#include <vector>

#include "core/result.h"
#include "core/spec/job_spec.h"
#include "core/spec/reader.h"
#include "core/spec/yaml_tree.h"

namespace motley {

/// Samples of a step of such a job.
inline constexpr int kModelJobBatch = 64;

/// The job in the file `word`; or one without data that trains the model of that name
/// (core/spec/model_presets.h), or the model in that file, whose keys are those of a job's `model`
/// (as in configs/models/). kNotFound where it is none of these.
Result<JobSpec> read_job_or_model(const std::string& word,
                                  const std::vector<Override>& overrides = {});

/// What parse_job() makes of a text that has been parsed.
Result<JobSpec> job_of(YamlTree tree, const std::string& source, const std::string& base_directory,
                       const std::vector<Override>& overrides, JobParts parts);

}  // namespace motley
