#include "core/spec/reader.h"
#include "scheduler/cli/command.h"
#include "scheduler/launch/remote_hosts.h"
#include "scheduler/run/fork_run.h"
#include "scheduler/run/measure.h"
#include "scheduler/run/resumed.h"
#include "scheduler/run/run_job.h"

namespace motley {
namespace {

/// `motley resume RUN|JOB`: a failed or stopped run goes on, perhaps on other devices, perhaps from
/// an earlier step; given a job file, as that says now.
class ResumeCommand final : public Command {
 public:
  void declare(CommandLine& line) override {
    line.positional("RUN", "a run (directory, name or name/n), or the job file it was started from",
                    &run_)
        .completes_runs()
        .option("--fleet", "FILE", "continue on these devices instead", &fleet_)
        .option("--step", "N", "go back to the checkpoint of step N, in a new run", &step_)
        .flag("--trace", "as `motley run --trace`", &options_.trace)
        .flag("--json", "end with one JSON object on stdout; tables go to stderr", &options_.json)
        .option("--rsh-agent", "PROGRAM", "used instead of ssh to reach other hosts",
                &options_.rsh_agent);
  }

  Result<int> run() override {
    MOTLEY_TRY(Resumed found, find_resumed(run_));
    options_.job = std::move(found.job);
    if (fleet_.empty()) {
      MOTLEY_TRY(options_.fleet, found.run.fleet());
    } else {
      MOTLEY_TRY(options_.fleet, read_fleet(fleet_));
    }
    if (step_) {
      MOTLEY_TRY(options_.run, fork_run(found.run, options_.job, *step_));
    } else {
      options_.run = std::move(found.run);
    }
    std::vector<std::string> again = {"motley", "resume", step_ ? options_.run->title() : run_};
    if (options_.trace) again.push_back("--trace");
    if (!options_.rsh_agent.empty()) again.insert(again.end(), {"--rsh-agent", options_.rsh_agent});
    options_.again = shell_command(again);
    return run_job(std::move(options_));
  }

 private:
  RunOptions options_;
  std::string run_, fleet_;
  std::optional<int64_t> step_;
};

}  // namespace

std::unique_ptr<Command> make_resume_command() { return std::make_unique<ResumeCommand>(); }

}  // namespace motley
