#pragma once
// `motley run` and `motley resume`: from a job to its report, through as many attempts as it takes.

#include <functional>
#include <optional>
#include <string>

#include "core/result.h"
#include "core/spec/fleet_spec.h"
#include "core/spec/job_spec.h"
#include "scheduler/run/given_plan.h"
#include "scheduler/run/run_directory.h"

namespace motley {

struct RunOptions {
  JobSpec job;
  FleetSpec fleet;
  std::optional<GivenPlan> plan;    ///< by the user; else searched
  std::optional<RunDirectory> run;  ///< to be continued; else the newest the job may continue
  bool fresh = false;
  bool fresh_if_changed = false;  ///< where the newest run was begun with another job or other data
  bool json = false;              ///< stdout gets the final object only; the rest goes to stderr
  bool compare = true;            ///< try an equal split first
  bool refresh = false;           ///< measure also what is known already
  bool trace = false;             ///< each rank writes one
  Bytes log_limit{0};             ///< of what a program prints, and of each rank's log; 0: none
  std::string rsh_agent;          ///< empty: ssh
  bool served = false;            ///< an attempt of the job service, which has no --fresh
  /// What to type to go on, or where nothing is saved to begin anew, for the message after a stop;
  /// empty: nothing.
  std::function<std::string(bool saved)> again;
};

/// The exit code of the program: 0 finished, 1 failed, 75 stopped with a checkpoint saved, 128 + n
/// ended by signal n.
Result<int> run_job(RunOptions options);

}  // namespace motley
