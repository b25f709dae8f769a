#pragma once
// The process around RunnerFsm: a listening socket, connections of ranks, mpirun, the commands on
// stdin, a timer. One thread; Boost.Asio inside.

#include <memory>
#include <string>

#include "core/result.h"
#include "scheduler/launch/launcher.h"
#include "scheduler/runner/assignment.h"

namespace motley {

struct RunnerOptions {
  std::string worker;     ///< path of motley-worker
  std::string rsh_agent;  ///< empty: ssh
};

/// Runs one attempt to its end, reporting on stdout and obeying stdin (runner_line.h). Returns when
/// no process of it is left. An error means that it could not even begin.
Result<Unit> run_attempt(Launcher& launcher, Assignment assignment, const RunnerOptions& options);

}  // namespace motley
