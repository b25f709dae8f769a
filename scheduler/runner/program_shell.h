#pragma once
// One attempt of a job that is a program: mpirun, the commands on stdin, the clock. Ranks
// need not speak to it: how they ended is in files of their hosts (program_assignment.h).

#include <string>

#include "core/result.h"
#include "scheduler/launch/launcher.h"
#include "scheduler/runner/runner_shell.h"

namespace motley {

/// Runs it to its end, reporting on stdout and obeying stdin (runner_line.h); besides "ended" there
/// is "output", with what rank 0 has printed. `program` is motley's own path. Returns when no
/// process of it is left.
Result<Unit> run_program_attempt(Launcher& launcher, const std::string& program,
                                 const std::string& document, const RunnerOptions& options);

}  // namespace motley
