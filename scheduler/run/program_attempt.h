#pragma once
// One attempt of a job that is a program: what its ranks are told, and the runner that starts them.

#include <functional>
#include <string>

#include "core/result.h"
#include "scheduler/run/follow.h"
#include "scheduler/run/progress_line.h"
#include "scheduler/run/run_directory.h"
#include "scheduler/run/run_job.h"
#include "scheduler/run/signal_inbox.h"
#include "scheduler/runner/program_assignment.h"

namespace motley {

class ProgramAttempts {
 public:
  /// Borrows all. Of `options` job, rsh_agent, json and log_limit count.
  ProgramAttempts(const RunOptions& options, SignalInbox& signals, ProgressLine& line)
      : options_(options), signals_(signals), line_(line) {}

  /// A rank for each device of `fleet`; epoch, checkpoints and shares are the caller's to fill in.
  Result<ProgramAssignment> assignment(const RunDirectory& run, const FleetSpec& fleet,
                                       const std::string& directory) const;

  /// Does what the job wants done before, calls `begun`, runs, and hands on what the runner tells.
  /// The attempt's directory gets `plan`.
  Result<Followed> launch(const RunDirectory& run, const ProgramAssignment& assignment,
                          const Plan& plan, const std::function<void()>& begun,
                          const std::function<void(const RunnerLine&)>& on_line);

 private:
  Result<Unit> set_up(const std::string& document);

  const RunOptions& options_;
  SignalInbox& signals_;
  ProgressLine& line_;
};

}  // namespace motley
