#pragma once
// YAML -> JobSpec, FleetSpec. The only door for YAML; a target of its own (motley_spec, yaml-cpp
// inside).
//
// Every error is one line "file:line:column: what (hint)". Refused: unknown and duplicate keys,
// anchors, aliases, tags, several documents, more than 256 KiB or 20,000 nodes for a job (8 MiB and
// 1,000,000 for a fleet), depth over 32. kNotFound when the file is missing, else kInvalidSpec.

#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "core/spec/fleet_spec.h"
#include "core/spec/job_spec.h"

namespace motley {

/// One `--set key.path=value`, applied as if written in the file.
struct Override {
  std::string path;
  std::string value;
  std::string where = "--set " + path;  ///< its place in messages
};

/// kWithoutData: no file of data is looked for, and `data` may be missing. kWithoutModel: for
/// planning by a profile that brings its model; neither `model`, `data` nor `steps` is needed, and
/// what only they decide is not checked.
/// kAllOrProgram: also a job that is a program (`run:`), which all others refuse.
enum class JobParts { kAll, kAllOrProgram, kWithoutData, kWithoutModel };

/// Reads and checks a job, of which `array` makes no others; expands data globs (kNotFound if one
/// matches nothing) and resolves paths against the file.
Result<JobSpec> read_job(const std::string& path, const std::vector<Override>& overrides = {},
                         JobParts parts = JobParts::kAll);
Result<JobSpec> parse_job(std::string_view text, const std::string& source,
                          const std::string& base_directory,
                          const std::vector<Override>& overrides = {},
                          JobParts parts = JobParts::kAll);

/// The jobs of a file that may have `array`, in the order of their indices; one without it.
/// kInvalidSpec for all of them where one is not a job.
Result<std::vector<JobSpec>> parse_jobs(std::string_view text, const std::string& source,
                                        const std::string& base_directory,
                                        const std::vector<Override>& overrides = {},
                                        JobParts parts = JobParts::kAll);

Result<FleetSpec> read_fleet(const std::string& path);
Result<FleetSpec> parse_fleet(std::string_view text, const std::string& source);

}  // namespace motley
