#pragma once
// The attempts of one run: restarted after failures, planned anew when a device is left out.

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "core/plan.h"
#include "core/profile.h"
#include "core/result.h"
#include "scheduler/report/run_summary.h"
#include "scheduler/run/attempt_follower.h"
#include "scheduler/run/retry_policy.h"
#include "scheduler/run/run_directory.h"

namespace motley {

struct TrainingRequest {
  RunDirectory& run;
  const JobSpec& job;
  const FleetSpec& fleet;  ///< admitted devices
  const Profile& profile;
  std::string rsh_agent;
  bool trace = false;
};

struct TrainingResult {
  Plan plan;                          ///< of the last attempt
  std::optional<AttemptRecord> last;  ///< its record
  std::optional<double> eval_loss;    ///< the last one of any attempt
  int restarts = 0;
  std::vector<OutOfMemory> out_of_memory;  ///< in the order of their happening
  std::optional<Error> failure;            ///< given up
};

/// Where the next attempt of this run may begin: the newest committed checkpoint of at most
/// `latest` steps that are all in metrics.jsonl, so that no step is missing from it; "newest" where
/// none is visible from here.
std::string checkpoint_to_resume(const RunDirectory& run, const JobSpec& job,
                                 int64_t latest = std::numeric_limits<int64_t>::max());

/// Trains until the job is finished, stopped by a signal, or given up.
Result<TrainingResult> train(const TrainingRequest& request, const Plan& first_plan,
                             SignalInbox& signals, ProgressLine& line);

}  // namespace motley
