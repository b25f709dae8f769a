#pragma once
// A profile in a file that the user names.

#include <string>

#include "core/profile.h"
#include "core/result.h"
#include "core/spec/fleet_spec.h"
#include "core/spec/job_spec.h"

namespace motley {

/// As `motley profile --json` prints it, of this job and of all devices of the fleet; of the
/// machines behind them nothing is asked. kInvalidSpec naming the file, kNotFound.
Result<Profile> read_profile_file(const std::string& path, const JobSpec& job,
                                  const FleetSpec& fleet);

}  // namespace motley
