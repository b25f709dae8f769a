#include <nlohmann/json.hpp>

#include "core/file_system.h"
#include "core/spec/reader.h"
#include "scheduler/cli/command.h"
#include "scheduler/cli/job_options.h"
#include "scheduler/launch/remote_hosts.h"
#include "scheduler/run/measure.h"
#include "scheduler/run/run_job.h"

namespace motley {
namespace {

class RunCommand final : public Command {
 public:
  void declare(CommandLine& line) override {
    line.optional_word("JOB", "job file (YAML)", &job_)
        .behind_dashes("what the script is given", &arguments_)
        .option("--script", "FILE", "run this Python script instead, a rank for each device",
                &script_)
        .option("--fleet", "FILE", "devices to use, instead of the job's own fleet", &fleet_)
        .option("--plan", "FILE", "any plan, by `motley plan -o` or by hand, instead of a search",
                &plan_)
        .option("--set", "KEY=VALUE", "override a value of the job, e.g. train.steps=100", &set_)
        .flag("--fresh", "start a new run instead of continuing the newest", &options_.fresh)
        .flag("--fresh-if-changed",
              "start a new run when the newest was begun with another job or other data, instead "
              "of refusing",
              &options_.fresh_if_changed)
        .flag("--refresh", "measure the devices also where that is known already",
              &options_.refresh)
        .flag("--json", "end with one JSON object on stdout; tables go to stderr", &options_.json)
        .flag("--trace",
              "each rank keeps what its time went on, the last 100,000 events: see "
              "`motley export trace`",
              &options_.trace)
        .flag("--no-compare", "do not try the equal split of `motley plan --equal-split` first",
              &no_compare_)
        .option("--rsh-agent", "PROGRAM", "used instead of ssh to reach other hosts",
                &options_.rsh_agent);
  }

  Result<int> run() override {
    if (job_.empty() == script_.empty())
      return fail(ErrorCode::kUsage,
                  job_.empty()
                      ? "JOB is required, or --script"
                      : "'" + job_ + "' beside --script: what is for the script follows --");
    if (script_.empty()) {
      if (!arguments_.empty())
        return fail(ErrorCode::kUsage, "what follows -- is for --script, which is not given");
      MOTLEY_TRY(options_.job, read_job_with(job_, set_, JobParts::kAllOrProgram));
    } else {
      MOTLEY_TRY(options_.job, job_of_script(script_, arguments_, set_));
    }
    MOTLEY_TRY(options_.fleet, resolve_fleet(fleet_, options_.job));
    if (!plan_.empty()) {
      MOTLEY_TRY(options_.plan, read_given_plan(plan_, options_.job, options_.fleet));
    }
    options_.compare = !no_compare_;
    options_.again = [text = again()](bool) { return text; };
    return run_job(std::move(options_));
  }

 private:
  /// The same command without what must not be repeated.
  std::string again() const {
    std::vector<std::string> words = {"motley", "run"};
    if (script_.empty())
      words.push_back(job_);
    else
      words.insert(words.end(), {"--script", script_});
    if (!fleet_.empty()) words.insert(words.end(), {"--fleet", fleet_});
    if (!plan_.empty()) words.insert(words.end(), {"--plan", plan_});
    for (const std::string& override_text : set_)
      words.insert(words.end(), {"--set", override_text});
    if (options_.trace) words.push_back("--trace");
    if (!options_.rsh_agent.empty()) words.insert(words.end(), {"--rsh-agent", options_.rsh_agent});
    if (!arguments_.empty()) {
      words.push_back("--");
      words.insert(words.end(), arguments_.begin(), arguments_.end());
    }
    return shell_command(words);
  }

  RunOptions options_;
  std::string job_, script_, fleet_, plan_;
  std::vector<std::string> arguments_, set_;
  bool no_compare_ = false;
};

}  // namespace

std::unique_ptr<Command> make_run_command() { return std::make_unique<RunCommand>(); }

}  // namespace motley
