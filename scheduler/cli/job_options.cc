#include "scheduler/cli/job_options.h"

namespace motley {

Result<std::vector<Override>> parse_overrides(const std::vector<std::string>& overrides) {
  std::vector<Override> parsed;
  for (const std::string& text : overrides) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0)
      return fail(ErrorCode::kUsage, "--set takes KEY=VALUE, not '" + text + "'");
    parsed.push_back({text.substr(0, equals), text.substr(equals + 1)});
  }
  return parsed;
}

Result<JobSpec> read_job_with(const std::string& path, const std::vector<std::string>& overrides,
                              JobParts parts) {
  MOTLEY_TRY(const std::vector<Override> parsed, parse_overrides(overrides));
  return read_job(path, parsed, parts);
}

}  // namespace motley
