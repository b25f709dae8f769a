#include "scheduler/cli/job_options.h"

#include <cctype>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/file_system.h"

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

Result<JobSpec> job_of_script(const std::string& script, const std::vector<std::string>& arguments,
                              const std::vector<std::string>& overrides) {
  if (!std::filesystem::is_regular_file(script))
    return fail(ErrorCode::kNotFound, "--script " + script + ": no such file");
  MOTLEY_TRY(const std::vector<Override> parsed, parse_overrides(overrides));
  std::string name = std::filesystem::path(script).stem().string();
  for (char& letter : name)
    if (std::isalnum(static_cast<unsigned char>(letter)) == 0 && letter != '_') letter = '-';
  std::vector<std::string> command = {"python3", script};
  command.insert(command.end(), arguments.begin(), arguments.end());
  const nlohmann::json job = {{"version", 1}, {"name", name}, {"run", command}};
  MOTLEY_TRY(JobSpec spec,
             parse_job(job.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace),
                       "--script " + script, std::filesystem::current_path().string(), parsed,
                       JobParts::kAllOrProgram));
  spec.places.clear();  // of a text that nobody has written
  return spec;
}

Result<JobSpec> read_job_with(const std::string& path, const std::vector<std::string>& overrides,
                              JobParts parts) {
  MOTLEY_TRY(const std::vector<Override> parsed, parse_overrides(overrides));
  return read_job(path, parsed, parts);
}

}  // namespace motley
