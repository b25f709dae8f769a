#pragma once
// What the same devices do when each gets the same number of samples: tried briefly, so that the
// report compares with something measured.

#include <optional>

#include "core/profile.h"
#include "core/result.h"
#include "scheduler/run/attempt_follower.h"
#include "scheduler/run/run_directory.h"

namespace motley {

struct EqualSplitRequest {
  const RunDirectory& run;
  const JobSpec& job;
  const FleetSpec& fleet;
  const Profile& profile;
  std::string rsh_agent;
};

/// Samples per second of a few steps in a directory of their own, remembered in the run; nothing
/// where no equal split is possible. kStopped when a signal came.
Result<std::optional<double>> try_equal_split(const EqualSplitRequest& request,
                                              SignalInbox& signals, ProgressLine& line);

/// What an earlier try of this run found.
std::optional<double> remembered_equal_split(const RunDirectory& run);

}  // namespace motley
