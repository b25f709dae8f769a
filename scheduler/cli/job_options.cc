#include "scheduler/cli/job_options.h"

#include <nlohmann/json.hpp>

#include "core/file_system.h"
#include "core/json_file.h"
#include "core/spec/reader.h"

namespace motley {

Result<JobSpec> read_job_with(const std::string& path, const std::vector<std::string>& overrides) {
  std::vector<Override> parsed;
  for (const std::string& text : overrides) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0)
      return fail(ErrorCode::kUsage, "--set takes KEY=VALUE, not '" + text + "'");
    parsed.push_back({text.substr(0, equals), text.substr(equals + 1)});
  }
  return read_job(path, parsed);
}

Result<Plan> read_plan_for(const std::string& path, const JobSpec& job, const FleetSpec& fleet) {
  MOTLEY_TRY(const auto document,
             read_json_file(real_file_system(), path, ErrorCode::kInvalidSpec));
  const auto refused = [&](const std::string& why) {
    return fail(ErrorCode::kInvalidSpec, why, {path, 0, 0});
  };
  auto plan = plan_from_json(document);
  if (!plan) return refused(plan.error().message);
  const auto valid = validate_for(*plan, job);
  if (!valid) return refused(valid.error().message);
  for (const RankPlacement& rank : plan->ranks) {
    const DeviceSpec* device = fleet.find(rank.device);
    if (device == nullptr || device->host != rank.host)
      return refused("the plan uses device " + rank.device + ", which is not in " +
                     (fleet.source.empty() ? "the fleet" : fleet.source));
  }
  return plan;
}

}  // namespace motley
