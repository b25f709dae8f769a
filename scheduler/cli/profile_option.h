#pragma once
// The profile that a command plans from: the file given with --profile, or else what the cache has
// or is measured now.

#include <string>

#include "core/profile.h"
#include "core/result.h"
#include "scheduler/run/measure.h"

namespace motley {

struct ProfileOption {
  std::string path;  ///< a profile written by `motley profile --json`; empty: none given
  MeasureOptions measure;
};

/// Of the devices of `fleet` that the job admits. What a file's profile is of must be the same job
/// and devices; of the machines behind them nothing is asked. kStopped when a signal came.
Result<Profile> profile_for(const JobSpec& job, const FleetSpec& fleet, const ProfileOption& option,
                            SignalInbox& signals);

}  // namespace motley
