#pragma once
// A plan that the user hands us instead of a search: completed, counted, priced. What is wrong with
// it is said with its place in the file, before anything starts.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/plan.h"
#include "core/profile.h"
#include "core/result.h"
#include "core/spec/fleet_spec.h"
#include "core/spec/job_spec.h"
#include "planner/request.h"

namespace motley {

/// Whether a plan comes from the user, in this run or in the one it continues.
bool is_given(const Plan& plan);

struct GivenPlan {
  Plan plan;  ///< valid for job and fleet
  std::string path;
  std::string text;                 ///< of the file: errors point into it
  std::vector<RankMemory> counted;  ///< by rank
};

/// Reads and completes (core/plan_completion.h) the plan in `path` and counts what its ranks need.
/// kInvalidSpec with file, line and column, also for a device or a number of them that
/// resources.devices of the job excludes, and for a rank beyond the memory its device is known to
/// have.
Result<GivenPlan> read_given_plan(const std::string& path, const JobSpec& job,
                                  const FleetSpec& fleet);

/// The plan with its prediction and id. kInvalidSpec as above for a rank beyond what its device was
/// found to have, or when the profile lacks something the plan needs.
Result<Plan> price(const GivenPlan& given, const JobSpec& job, const FleetSpec& fleet,
                   const Profile& profile);

/// A plan with the job and the devices it uses: enough for `motley-worker` without `motley`. Where
/// the files of either lie is no part of it: the same job is the same document everywhere.
nlohmann::json packed(const Plan& plan, JobSpec job, const FleetSpec& fleet);

}  // namespace motley
