#pragma once
// What the same devices do when each gets the same number of samples, or where none holds the model
// alone as many layers: tried briefly, so that the report compares with something measured.

#include <optional>

#include "core/profile.h"
#include "core/result.h"
#include "planner/request.h"
#include "scheduler/report/run_summary.h"
#include "scheduler/run/attempt_follower.h"
#include "scheduler/run/run_directory.h"

namespace motley {

/// planner/plain/search.h, with memory counted by `motley-worker estimate`.
Result<Plan> equal_split_plan(const PlanRequest& request);

struct EqualSplitRequest {
  const RunDirectory& run;
  const JobSpec& job;
  const FleetSpec& fleet;
  const Profile& profile;
  std::string rsh_agent;
};

/// A few steps in a directory of their own, remembered in the run. Where none is possible or its
/// steps fail, that is said and remembered too: training needs no comparison. kStopped when a
/// signal came.
Result<EqualSplit> try_equal_split(const EqualSplitRequest& request, SignalInbox& signals,
                                   ProgressLine& line);

/// What an earlier try of this run found.
std::optional<EqualSplit> remembered_equal_split(const RunDirectory& run);

}  // namespace motley
