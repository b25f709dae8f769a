#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "planner/costs/step_timeline.h"
#include "planner/questions/explain.h"
#include "planner/questions/fleet_parts.h"
#include "scheduler/cli/command.h"
#include "scheduler/cli/job_options.h"
#include "scheduler/cli/output_file.h"
#include "scheduler/cli/simulate_trace.h"
#include "scheduler/cli/what_if.h"
#include "scheduler/policies/policy.h"
#include "scheduler/report/plan_table.h"
#include "scheduler/report/table.h"
#include "scheduler/report/timeline.h"
#include "scheduler/run/find_plan.h"
#include "scheduler/run/given_plan.h"
#include "scheduler/run/measure.h"
#include "scheduler/run/simulated_plan.h"

namespace motley {
namespace {

constexpr int kSimulationVersion = 1;

/// "link a1 - r1: 1.2 GB/s, 60 us, assumed".
std::string assumed_text(const LinkProfile& link) {
  const std::string where = link.between[0] == link.between[1]
                                ? "within " + link.between[0]
                                : link.between[0] + " - " + link.between[1];
  return "link " + where + ": " + format_fixed(link.bytes_per_second / 1e9, 2) + " GB/s, " +
         format_duration(link.latency_seconds) + ", assumed\n";
}

/// `motley simulate JOB`: what a step of a fleet would be that nobody has here.
class SimulateCommand final : public Command {
 public:
  void declare(CommandLine& line) override {
    line.optional_word("JOB", "job file (YAML); not with --trace", &job_)
        .option("--fleet", "FILE", "devices to simulate, instead of the job's own fleet", &fleet_)
        .option("--plan", "PLAN", "simulate this plan, by hand or by us, instead of searching one",
                &plan_)
        .option("--profile", "FILE",
                "a profile written by `motley profile --json`, instead of the cache or the catalog",
                &sources_.profile)
        .option("--catalog", "FILE",
                "figures of devices, instead of what was measured and of the catalog built in",
                &sources_.catalog)
        .option("-o,--output", "FILE", "write the step as a trace for Perfetto", &trace_)
        .option("--svg", "FILE", "draw it", &svg_)
        .option("--trace", "FILE",
                "instead of one job's step: jobs that come over time (.jsonl, .csv, .tsv), on the "
                "devices of --fleet",
                &jobs_.trace)
        .option("--policy", "NAME",
                "who runs next, of --trace; default: all policies, side by side", &jobs_.policy)
        .completes(names_of_policies())
        .option("--speeds", "FILE", "steps a second by device type and job type, of a .tsv trace",
                &jobs_.speeds)
        .flag("--mix", "each job of --trace may take its devices of several types at once",
              &jobs_.mix)
        .option("--convert", "FILE", "write the trace as JSON Lines", &jobs_.convert)
        .flag("--explain",
              "say what else was considered and why it lost, and what would have to be different "
              "for another step",
              &explain_)
        .flag("--json", "one object: the step rank by rank, and the plan", &json_)
        .option("--set", "KEY=VALUE", "override a value of the job", &set_);
  }

  Result<int> run() override {
    if (!jobs_.trace.empty()) return run_trace();
    if (job_.empty()) return fail(ErrorCode::kUsage, "needs a JOB, or --trace FILE");
    if (!jobs_.policy.empty() || !jobs_.speeds.empty() || !jobs_.convert.empty() || jobs_.mix)
      return fail(ErrorCode::kUsage, "--policy, --speeds, --mix and --convert go with --trace");
    if (!sources_.profile.empty() && !sources_.catalog.empty())
      return fail(ErrorCode::kUsage, "--profile and --catalog exclude each other");
    MOTLEY_TRY(JobSpec job, read_job_with(job_, set_));
    MOTLEY_TRY(const FleetSpec fleet, resolve_fleet(fleet_, job));
    std::optional<GivenPlan> given;
    if (!plan_.empty()) {
      MOTLEY_TRY(given, read_given_plan(plan_, job, fleet));
    }
    if (!given) MOTLEY_TRY_VOID(check_parallel(fleet, job));
    const auto profile_of = [&](const FleetSpec& chosen) {
      return profile_for_simulation(job, chosen, sources_);
    };
    MOTLEY_TRY(const SimulatedPlan simulated,
               given ? simulate_given(*given, job, fleet) : plan_simulated(job, fleet, profile_of));
    const auto& [from, plan] = simulated;
    MOTLEY_TRY(const StepTimeline timeline, step_timeline({job, fleet, from.profile}, plan));
    const DrawnStep step{job.name, plan, from.profile, timeline};
    if (!trace_.empty()) MOTLEY_TRY_VOID(write_output_file(trace_, timeline_trace(step)));
    if (!svg_.empty()) MOTLEY_TRY_VOID(write_output_file(svg_, timeline_svg(step)));
    Result<std::vector<Counterfactual>> changes = std::vector<Counterfactual>();
    SignalInbox signals;
    if (explain_ && !given) {
      const FleetSpec known = part_of(
          fleet, [&](const DeviceSpec& device) { return from.profile.find(device.id) != nullptr; });
      const auto search = [&](const PlanRequest& asked) -> Result<Plan> {
        if (asked.fleet.devices.size() == known.devices.size()) return find_plan(asked);
        // Links within hosts may be assumed to be better without some of their devices.
        MOTLEY_TRY(SimulatedPlan other, plan_simulated(job, asked.fleet, profile_of));
        return std::move(other.plan);
      };
      changes = what_would_change({job, known, from.profile}, plan, search, signals);
      if (!changes && changes.error().code == ErrorCode::kStopped) return 128 + signals.last();
      if (!changes) return fail(changes.error());
    }
    if (json_)
      print_json(step, from, packed(plan, job, fleet), *changes);
    else
      print_text(step, from, *changes);
    return 0;
  }

 private:
  static std::vector<std::string> names_of_policies() {
    const auto names = policy_names();
    return {names.begin(), names.end()};
  }

  /// As if there were no other devices than the plan's: links within a host may be assumed to be
  /// worse beside unlike ones.
  Result<SimulatedPlan> simulate_given(const GivenPlan& given, const JobSpec& job,
                                       const FleetSpec& fleet) const {
    const FleetSpec used = used_by(given.plan, fleet);
    MOTLEY_TRY(ProfileForSimulation from, profile_for_simulation(job, used, sources_));
    MOTLEY_TRY(Plan plan, price(given, job, fleet, from.profile));
    return SimulatedPlan{std::move(from), std::move(plan)};
  }

  Result<int> run_trace() {
    if (!job_.empty() || !plan_.empty() || !trace_.empty() || !svg_.empty() || !set_.empty() ||
        !sources_.profile.empty() || !sources_.catalog.empty() || explain_)
      return fail(ErrorCode::kUsage,
                  "--trace goes with --fleet, --policy, --speeds, --mix, --convert "
                  "and --json alone");
    jobs_.fleet = fleet_;
    jobs_.json = json_;
    return simulate_trace_command(jobs_);
  }

  void print_json(const DrawnStep& step, const ProfileForSimulation& from, nlohmann::json plan,
                  const std::vector<Counterfactual>& changes) const {
    if (explain_) plan["search"]["counterfactuals"] = to_json(changes);
    nlohmann::json document = timeline_json(step);
    document["version"] = kSimulationVersion;
    document["source"] = from.source;
    document["remarks"] = from.remarks;
    document["assumed_links"] = nlohmann::json::array();
    for (const LinkProfile& link : from.assumed) document["assumed_links"].push_back(to_json(link));
    document["plan"] = std::move(plan);
    std::printf("%s\n", document.dump(2).c_str());
  }

  void print_text(const DrawnStep& step, const ProfileForSimulation& from,
                  const std::vector<Counterfactual>& changes) const {
    std::printf("%s\n%s", plan_table(step.plan, weakest_evidence(step.profile, step.plan)).c_str(),
                timeline_table(step).c_str());
    for (const std::string& remark : from.remarks) std::printf("from: %s\n", remark.c_str());
    for (const LinkProfile& link : from.assumed) std::printf("%s", assumed_text(link).c_str());
    if (explain_)
      std::printf("\n%s%s", explain(step.plan).c_str(),
                  counterfactual_text(step.plan, changes).c_str());
    for (const std::string& file : {trace_, svg_})
      if (!file.empty()) std::printf("written to %s\n", file.c_str());
  }

  SimulationSources sources_;
  TraceOptions jobs_;
  std::string job_, fleet_, plan_, trace_, svg_;
  std::vector<std::string> set_;
  bool explain_ = false, json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_simulate_command() { return std::make_unique<SimulateCommand>(); }

}  // namespace motley
