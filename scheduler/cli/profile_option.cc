#include "scheduler/cli/profile_option.h"

#include "core/clock.h"
#include "core/spec/profile_fit.h"
#include "core/spec/profile_key.h"
#include "scheduler/run/profile_file.h"

namespace motley {
Result<Profile> profile_for(const JobSpec& job, const FleetSpec& fleet, const ProfileOption& option,
                            SignalInbox& signals) {
  MOTLEY_TRY(const FleetSpec chosen, admitted(fleet, job));
  ProgressLine line(steady_clock());
  if (option.path.empty()) return obtain_profile(job, chosen, option.measure, signals, line);
  MOTLEY_TRY(Profile profile, read_profile_file(option.path, job, chosen));
  const int measured = measured_micro_batches(profile);
  if (measured < largest_profiled_micro_batch(job))
    line.note(option.path + " ends at micro-batch " + std::to_string(measured) +
              ": no larger one is planned");
  return profile;
}

}  // namespace motley
