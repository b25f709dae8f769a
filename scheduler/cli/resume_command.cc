#include <cstdio>
#include <nlohmann/json.hpp>

#include "core/spec/reader.h"
#include "scheduler/cli/service_command.h"
#include "scheduler/launch/remote_hosts.h"
#include "scheduler/run/fork_run.h"
#include "scheduler/run/measure.h"
#include "scheduler/run/resumed.h"
#include "scheduler/run/run_job.h"

namespace motley {
namespace {

/// `motley resume RUN|JOB`: a failed or stopped run goes on, perhaps on other devices, perhaps from
/// an earlier step; given a job file, as that says now. A number is a job of the service: what that
/// has saved a new job goes on from. Runs whose name is a number have another one: "24/1".
class ResumeCommand final : public Command {
 public:
  void declare(CommandLine& line) override {
    line.positional("RUN",
                    "a run (directory, name or name/n), or the job file it was started from; a "
                    "number: a job of the service that has ended, of which a new one is made",
                    &run_)
        .completes_runs()
        .option("--fleet", "FILE", "continue on these devices instead", &fleet_)
        .option("--step", "N", "go back to the checkpoint of step N, in a new run", &step_)
        .flag("--trace", "as `motley run --trace`", &options_.trace)
        .flag("--json", "end with one JSON object on stdout; tables go to stderr", &options_.json)
        .option("--rsh-agent", "PROGRAM", "used instead of ssh to reach other hosts",
                &options_.rsh_agent);
    declare_service(line, &service_);
  }

  Result<int> run() override {
    if (is_number(run_)) return resume_job();
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
    options_.again = [text = shell_command(again)](bool) { return text; };
    return run_job(std::move(options_));
  }

 private:
  Result<int> resume_job() {
    if (!fleet_.empty() || options_.trace || !options_.rsh_agent.empty())
      return fail(ErrorCode::kUsage, "--fleet, --trace and --rsh-agent are for a run, and " + run_ +
                                         " is a job of the service (a run of that name is " + run_ +
                                         "/1)");
    MOTLEY_TRY(const ServiceClient client, client_of(service_));
    const std::string step = step_ ? "?step=" + std::to_string(*step_) : "";
    MOTLEY_TRY(const nlohmann::json job,
               client.post("/v1/jobs/" + run_ + "/resume" + step, "", new_submission_key()));
    const std::string number = std::to_string(job.value("id", int64_t{0}));
    std::printf("%s\n", options_.json ? job.dump().c_str() : number.c_str());
    if (!options_.json)
      std::fprintf(stderr, "submitted, to go on from job %s; motley logs -f %s follows it\n",
                   run_.c_str(), number.c_str());
    return 0;
  }

  RunOptions options_;
  ServiceChoice service_;
  std::string run_, fleet_;
  std::optional<int64_t> step_;
};

}  // namespace

std::unique_ptr<Command> make_resume_command() { return std::make_unique<ResumeCommand>(); }

}  // namespace motley
