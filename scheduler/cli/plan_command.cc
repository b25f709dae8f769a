#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/clock.h"
#include "core/units.h"
#include "planner/questions/explain.h"
#include "planner/questions/objective.h"
#include "scheduler/cli/command.h"
#include "scheduler/cli/counted_search.h"
#include "scheduler/cli/foreign_plan.h"
#include "scheduler/cli/job_options.h"
#include "scheduler/cli/output_file.h"
#include "scheduler/cli/profile_option.h"
#include "scheduler/cli/what_if.h"
#include "scheduler/report/plan_table.h"
#include "scheduler/report/table.h"
#include "scheduler/run/equal_split.h"
#include "scheduler/run/find_plan.h"
#include "scheduler/run/given_plan.h"
#include "scheduler/run/measure.h"

namespace motley {
namespace {

/// "2000 steps: 5h10m, cost 12.40; quickest: 3h02m, cost 18.20".
std::string bill_text(int64_t steps, const CheapestPlan& found) {
  const auto told = [](const Bill& bill) {
    return format_seconds(bill.seconds) + ", cost " + cost_text(bill.cost);
  };
  std::string text = std::to_string(steps) + " steps: " + told(found.bill);
  if (found.quickest.seconds < found.bill.seconds) text += "; quickest: " + told(found.quickest);
  return text + "\n";
}

class PlanCommand final : public Command {
 public:
  void declare(CommandLine& line) override {
    line.positional("JOB", "job file (YAML)", &job_)
        .option("--fleet", "FILE", "devices to plan for, instead of the job's own fleet", &fleet_)
        .option("--profile", "FILE",
                "a profile written by `motley profile --json`, instead of the cache; or one that "
                "brings its model (core/FORMATS.md, foreign profile)",
                &profile_)
        .option("-o,--output", "FILE", "write the plan for `motley run --plan`", &output_)
        .option("--score", "PLAN", "predict this plan, by hand or by us, instead of searching",
                &score_)
        .flag(
            "--equal-split",
            "the baseline: plain data parallel, as many samples for each device that holds the "
            "model, synchronous reduction at the end; where none does, a pipeline of equal stages",
            &equal_)
        .option("--objective", "WHAT", "throughput (the default) or cost: the cheapest in time",
                &objective_)
        .completes({"throughput", "cost"})
        .option("--deadline", "TIME", "when all steps must have ended, such as 6h", &deadline_)
        .flag(
            "--explain",
            "say what else was considered and why it lost, and what would have to be different for "
            "another step",
            &explain_)
        .flag("--json", "the plan as JSON, with the search's wall time", &json_)
        .option("--set", "KEY=VALUE", "override a value of the job", &set_)
        .option("--rsh-agent", "PROGRAM", "used instead of ssh to reach other hosts",
                &measure_.rsh_agent);
  }

  Result<int> run() override {
    MOTLEY_TRY(const auto deadline, wanted_deadline());
    if (!score_.empty() && equal_)
      return fail(ErrorCode::kUsage, "--score and --equal-split are two plans; give one of them");
    if (!output_.empty()) MOTLEY_TRY_VOID(check_output_file(output_));
    if (!profile_.empty()) {
      MOTLEY_TRY(const bool is_foreign, is_foreign_profile(profile_));
      if (is_foreign) return by_foreign_profile();
    }
    MOTLEY_TRY(JobSpec job, read_job_with(job_, set_));
    MOTLEY_TRY(const FleetSpec fleet, resolve_fleet(fleet_, job));
    std::optional<GivenPlan> given;
    if (!score_.empty()) {
      MOTLEY_TRY(given, read_given_plan(score_, job, fleet));
    }
    if (!given && !equal_) MOTLEY_TRY_VOID(check_parallel(fleet, job));
    SignalInbox signals;
    const auto profile = profile_for(job, fleet, {profile_, measure_}, signals);
    if (!profile && profile.error().code == ErrorCode::kStopped) return 128 + signals.last();
    if (!profile) return fail(profile.error());
    const Nanos before = steady_clock().now();
    const auto plan = plan_of({job, fleet, *profile}, given, deadline, signals);
    if (!plan && plan.error().code == ErrorCode::kStopped) return 128 + signals.last();
    if (!plan) return fail(plan.error());
    MOTLEY_TRY_VOID(check_deadline(*plan, job.train.steps, deadline));
    const double wall_seconds = seconds_of(steady_clock().now() - before);
    nlohmann::json document = packed(*plan, job, fleet);
    if (!output_.empty()) {
      MOTLEY_TRY_VOID(write_output_file(output_, document.dump(2) + "\n"));
    }
    std::string what_if;
    if (explain_ && !given && !equal_ && objective_ != kCost) {
      const auto changes = what_would_change({job, fleet, *profile}, *plan, find_plan, signals);
      if (!changes && changes.error().code == ErrorCode::kStopped) return 128 + signals.last();
      if (!changes) return fail(changes.error());
      document["search"]["counterfactuals"] = to_json(*changes);
      what_if = counterfactual_text(*plan, *changes);
    }
    print(job, *profile, *plan, document, wall_seconds, what_if);
    return 0;
  }

 private:
  static constexpr const char* kCost = "cost";

  /// In seconds; kUsage when the words of objective and deadline make no sense.
  Result<std::optional<double>> wanted_deadline() const {
    const bool searches = score_.empty() && !equal_;
    if (objective_ != kCost && objective_ != "throughput")
      return fail(ErrorCode::kUsage, "--objective is throughput or cost, not '" + objective_ + "'");
    if (objective_ == kCost && !searches)
      return fail(ErrorCode::kUsage, "--objective is of a search, not of --score or --equal-split");
    if (deadline_.empty()) return std::optional<double>();
    const auto deadline = parse_duration(deadline_);
    if (!deadline) return fail(ErrorCode::kUsage, "--deadline: " + deadline.error().message);
    return seconds_of(*deadline);
  }

  Result<int> by_foreign_profile() const {
    if (equal_ || explain_ || objective_ == kCost || !deadline_.empty())
      return fail(ErrorCode::kUsage,
                  "--equal-split, --explain, --objective and --deadline need a profile of this "
                  "job's own; " +
                      profile_ + " brings its model");
    return plan_by_foreign_profile({job_, fleet_, profile_, score_, output_, set_, json_});
  }

  Result<Plan> plan_of(const PlanRequest& request, const std::optional<GivenPlan>& given,
                       const std::optional<double>& deadline, SignalInbox& signals) {
    if (given) return price(*given, request.job, request.fleet, request.profile);
    if (equal_) return equal_split_plan(request);
    if (objective_ != kCost) return find_plan(request);
    ProgressLine line(steady_clock());
    MOTLEY_TRY(CheapestPlan found,
               cheapest_plan(request, deadline, counted_search(find_plan, signals, line)));
    bill_ = bill_text(request.job.train.steps, found);
    return std::move(found.plan);
  }

  void print(const JobSpec& job, const Profile& profile, const Plan& plan, nlohmann::json document,
             double wall_seconds, const std::string& what_if) const {
    if (json_) {
      document["search"]["wall_seconds"] = wall_seconds;
      std::printf("%s\n", document.dump(2).c_str());
      return;
    }
    const Evidence evidence = weakest_evidence(profile, plan);
    if (equal_) std::printf("%s\n\n", plan.search.space.c_str());
    std::printf("%s\n%s", solo_table(solo_speeds(profile, plan, job.model), evidence).c_str(),
                plan_table(plan, evidence).c_str());
    std::printf("%s", bill_.c_str());
    if (explain_) std::printf("\n%s%s", explain(plan).c_str(), what_if.c_str());
    if (!output_.empty()) std::printf("written to %s\n", output_.c_str());
  }

  MeasureOptions measure_;
  std::string job_, fleet_, profile_, output_, score_, deadline_, bill_;
  std::string objective_ = "throughput";
  std::vector<std::string> set_;
  bool equal_ = false, explain_ = false, json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_plan_command() { return std::make_unique<PlanCommand>(); }

}  // namespace motley
