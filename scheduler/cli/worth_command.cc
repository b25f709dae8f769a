#include <cstdio>
#include <nlohmann/json.hpp>

#include "core/clock.h"
#include "planner/questions/worth.h"
#include "scheduler/cli/command.h"
#include "scheduler/cli/counted_search.h"
#include "scheduler/cli/job_options.h"
#include "scheduler/cli/profile_option.h"
#include "scheduler/report/worth_table.h"
#include "scheduler/run/find_plan.h"

namespace motley {
namespace {

/// `motley worth JOB`: should these types of devices be mixed at all?
class WorthCommand final : public Command {
 public:
  void declare(CommandLine& line) override {
    line.positional("JOB", "job file (YAML)", &job_)
        .option("--fleet", "FILE", "devices to judge, instead of the job's own fleet", &fleet_)
        .option("--profile", "FILE",
                "a profile written by `motley profile --json`, instead of the cache",
                &profile_.path)
        .flag("--json", "mixes and verdict as JSON", &json_)
        .option("--set", "KEY=VALUE", "override a value of the job", &set_)
        .option("--rsh-agent", "PROGRAM", "used instead of ssh to reach other hosts",
                &profile_.measure.rsh_agent);
  }

  Result<int> run() override {
    MOTLEY_TRY(JobSpec job, read_job_with(job_, set_));
    MOTLEY_TRY(const FleetSpec fleet, resolve_fleet(fleet_, job));
    MOTLEY_TRY_VOID(check_parallel(fleet, job));
    SignalInbox signals;
    const auto profile = profile_for(job, fleet, profile_, signals);
    if (!profile && profile.error().code == ErrorCode::kStopped) return 128 + signals.last();
    if (!profile) return fail(profile.error());
    ProgressLine line(steady_clock());
    const auto worth =
        compare_mixes({job, fleet, *profile}, counted_search(find_plan, signals, line));
    line.finish();
    if (!worth && worth.error().code == ErrorCode::kStopped) return 128 + signals.last();
    if (!worth) return fail(worth.error());
    const Evidence evidence = weakest_evidence(*profile);
    const std::string text =
        json_ ? worth_json(*worth, evidence).dump(2) + "\n" : worth_text(*worth, evidence);
    std::fputs(text.c_str(), stdout);
    return 0;
  }

 private:
  ProfileOption profile_;
  std::string job_, fleet_;
  std::vector<std::string> set_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_worth_command() { return std::make_unique<WorthCommand>(); }

}  // namespace motley
