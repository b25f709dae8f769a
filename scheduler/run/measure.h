#pragma once
// From devices to their profile: out of the cache, or by launching `motley-worker profile` on the
// fleet's own hosts, never on another machine.

#include <string>

#include "core/profile.h"
#include "core/result.h"
#include "core/spec/fleet_spec.h"
#include "core/spec/job_spec.h"
#include "scheduler/run/progress_line.h"
#include "scheduler/run/signal_inbox.h"

namespace motley {

struct MeasureOptions {
  std::string rsh_agent;  ///< empty: ssh
  bool refresh = false;   ///< measure also what the cache has
};

/// Waits while another process measures a job of this name. kNoDevice naming a host that does not
/// answer; kStopped when a signal came.
Result<Profile> obtain_profile(const JobSpec& job, const FleetSpec& admitted,
                               const MeasureOptions& options, SignalInbox& signals,
                               ProgressLine& line);

/// Whether devices are being measured for a job of this name whose state is below `state_home`
/// (XDG_STATE_HOME); also by ranks that have outlived who started them.
bool being_measured(const std::string& state_home, const std::string& name);

/// The devices of this machine, as `motley-worker devices` finds them.
Result<FleetSpec> local_fleet();

/// The fleet a command shall use: the file given, else the job's, else this machine. kNotFound at
/// the place of the job that names a missing one. The job keeps the first of its alternatives that
/// the fleet satisfies; kNoDevice where it satisfies none. Warns of misspelt_types().
Result<FleetSpec> resolve_fleet(const std::string& fleet_option, JobSpec& job);

}  // namespace motley
