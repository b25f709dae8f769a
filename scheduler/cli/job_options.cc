#include "scheduler/cli/job_options.h"

namespace motley {

Result<JobSpec> read_job_with(const std::string& path, const std::vector<std::string>& overrides,
                              JobParts parts) {
  std::vector<Override> parsed;
  for (const std::string& text : overrides) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0)
      return fail(ErrorCode::kUsage, "--set takes KEY=VALUE, not '" + text + "'");
    parsed.push_back({text.substr(0, equals), text.substr(equals + 1)});
  }
  return read_job(path, parsed, parts);
}

}  // namespace motley
