#include "scheduler/run/profile_file.h"

#include <nlohmann/json.hpp>

#include "core/file_system.h"
#include "core/json_file.h"
#include "core/json_place.h"
#include "core/spec/profile_fit.h"

namespace motley {
namespace {

constexpr Bytes kLargestProfile{256 << 20};

}  // namespace

Result<Profile> read_profile_file(const std::string& path, const JobSpec& job,
                                  const FleetSpec& fleet) {
  MOTLEY_TRY(const std::string text, read_text(real_file_system(), path, kLargestProfile));
  MOTLEY_TRY(const auto document, parse_json_file(text, path, ErrorCode::kInvalidSpec));
  if (document.is_object() && document.contains("model"))
    return fail(ErrorCode::kUnsupported,
                "a foreign profile, which brings its model: `motley plan --profile` alone takes it",
                {path, 0, 0});
  auto profile = profile_from_json(document);
  if (!profile)
    return fail(placed_in({ErrorCode::kInvalidSpec, profile.error().message, {}}, text, path));
  const auto nobody_knows = [](const DeviceSpec&) { return Machine(); };
  if (const auto why = misfit(*profile, job, fleet, nobody_knows))
    return fail(ErrorCode::kInvalidSpec,
                "the profile does not fit: " + *why + "; `motley profile JOB --json` makes one",
                {path, 0, 0});
  return profile;
}

}  // namespace motley
