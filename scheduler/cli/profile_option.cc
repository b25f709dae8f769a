#include "scheduler/cli/profile_option.h"

#include <algorithm>
#include <utility>

#include "core/clock.h"
#include "core/spec/profile_fit.h"
#include "core/spec/profile_key.h"
#include "scheduler/launch/this_host.h"
#include "scheduler/run/profile_file.h"

namespace motley {
namespace {

/// Hosts that cannot be reached can still be planned for.
Error with_way_out(Error error, const FleetSpec& fleet) {
  const std::vector<std::string> hosts = fleet.hosts();
  if (error.code == ErrorCode::kNoDevice && !std::all_of(hosts.begin(), hosts.end(), is_this_host))
    error.message += "; `motley simulate` plans without measuring, by figures of its catalog";
  return error;
}

}  // namespace

Result<Profile> profile_for(const JobSpec& job, const FleetSpec& fleet, const ProfileOption& option,
                            SignalInbox& signals) {
  MOTLEY_TRY(const FleetSpec chosen, admitted(fleet, job));
  ProgressLine line(steady_clock());
  if (option.path.empty())
    return obtain_profile(job, chosen, option.measure, signals, line).map_error([&](Error error) {
      return with_way_out(std::move(error), chosen);
    });
  MOTLEY_TRY(Profile profile, read_profile_file(option.path, job, chosen));
  const int measured = measured_micro_batches(profile);
  if (measured < largest_profiled_micro_batch(job))
    line.note(option.path + " ends at micro-batch " + std::to_string(measured) +
              ": no larger one is planned");
  return profile;
}

}  // namespace motley
