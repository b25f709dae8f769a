#pragma once
// What the runner hands to `motley-worker train --attempt attempt.json` (core/FORMATS.md,
// "attempt"), and the other ways `motley` calls it:
//
//   motley-worker version --json     one object: {"version", "git", "mpi", ...}, strings
//   motley-worker devices --json     the devices of this machine, also as a fleet
//   motley-worker profile --request FILE      under mpirun; a ProfileRequest, below
//   motley-worker sample --run-dir DIR --bytes N     text on stdout, newest checkpoint of the run
//
// All end with an exit code of DESIGN.md §4 and, on failure, one line on stderr.

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "core/ids.h"
#include "core/plan.h"
#include "core/result.h"
#include "core/spec/fleet_spec.h"
#include "core/spec/job_spec.h"

namespace motley {

struct Attempt {
  Epoch epoch{1};
  std::string run_dir;
  JobSpec job;
  FleetSpec fleet;  ///< the devices of the plan with their pace
  Plan plan;
  std::string resume_checkpoint;  ///< directory name; "newest" (default) or "none"
  std::string control;   ///< "unix:/path" or "tcp:host:port" of the runner; empty: nobody listens
  std::string key_file;  ///< secret of this attempt, 0600
  bool trace = false;    ///< each rank writes trace_path() when it ends
};

nlohmann::json to_json(const Attempt& attempt);
Result<Attempt> attempt_from_json(const nlohmann::json& json);

/// What the runner hands to `motley-worker profile --request request.json` (core/FORMATS.md,
/// "profile request"): rank r drives fleet.devices[r]. Rank 0 sends the Profile as a kProfile frame
/// before its kDone; with an empty `control` it prints it on stdout instead. Phases are reported as
/// "measuring".
struct ProfileRequest {
  Epoch epoch{1};
  JobSpec job;
  FleetSpec fleet;       ///< admitted devices, all of them measured
  std::string control;   ///< as in Attempt
  std::string key_file;  ///< as in Attempt
};

nlohmann::json to_json(const ProfileRequest& request);
Result<ProfileRequest> profile_request_from_json(const nlohmann::json& json);

}  // namespace motley
