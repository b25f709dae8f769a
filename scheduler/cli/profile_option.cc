#include "scheduler/cli/profile_option.h"

#include <nlohmann/json.hpp>

#include "core/clock.h"
#include "core/file_system.h"
#include "core/json_file.h"
#include "core/spec/profile_fit.h"
#include "core/spec/profile_key.h"

namespace motley {
namespace {

Result<Profile> read_profile_for(const std::string& path, const JobSpec& job,
                                 const FleetSpec& fleet) {
  MOTLEY_TRY(const auto document,
             read_json_file(real_file_system(), path, ErrorCode::kInvalidSpec));
  const auto refused = [&](const std::string& why) {
    return fail(ErrorCode::kInvalidSpec, why, {path, 0, 0});
  };
  auto profile = profile_from_json(document);
  if (!profile) return refused(profile.error().message);
  if (const auto why = misfit(*profile, job, fleet, [](const DeviceSpec&) { return Machine(); }))
    return refused("the profile does not fit: " + *why + "; `motley profile JOB --json` makes one");
  return profile;
}

}  // namespace

Result<Profile> profile_for(const JobSpec& job, const FleetSpec& fleet, const ProfileOption& option,
                            SignalInbox& signals) {
  MOTLEY_TRY(const FleetSpec chosen, admitted(fleet, job));
  ProgressLine line(steady_clock());
  if (option.path.empty()) return obtain_profile(job, chosen, option.measure, signals, line);
  MOTLEY_TRY(Profile profile, read_profile_for(option.path, job, chosen));
  const int measured = measured_micro_batches(profile);
  if (measured < largest_profiled_micro_batch(job))
    line.note(option.path + " ends at micro-batch " + std::to_string(measured) +
              ": no larger one is planned");
  return profile;
}

}  // namespace motley
