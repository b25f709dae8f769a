#include "scheduler/run/profile_file.h"

#include <nlohmann/json.hpp>

#include "core/file_system.h"
#include "core/json_file.h"
#include "core/spec/profile_fit.h"

namespace motley {

Result<Profile> read_profile_file(const std::string& path, const JobSpec& job,
                                  const FleetSpec& fleet) {
  MOTLEY_TRY(const auto document,
             read_json_file(real_file_system(), path, ErrorCode::kInvalidSpec));
  auto profile = profile_from_json(document);
  if (!profile) return fail(ErrorCode::kInvalidSpec, profile.error().message, {path, 0, 0});
  const auto nobody_knows = [](const DeviceSpec&) { return Machine(); };
  if (const auto why = misfit(*profile, job, fleet, nobody_knows))
    return fail(ErrorCode::kInvalidSpec,
                "the profile does not fit: " + *why + "; `motley profile JOB --json` makes one",
                {path, 0, 0});
  return profile;
}

}  // namespace motley
