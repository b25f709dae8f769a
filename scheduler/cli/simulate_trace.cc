#include "scheduler/cli/simulate_trace.h"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "core/spec/reader.h"
#include "scheduler/cli/output_file.h"
#include "scheduler/simulate/trace_report.h"

namespace motley {
namespace {

constexpr int kTraceReportVersion = 1;

Result<std::vector<PolicyOutcome>> outcomes_of(const TraceOptions& options,
                                               const std::vector<TraceJob>& trace,
                                               const std::vector<Pool>& pools) {
  std::vector<std::string_view> names = policy_names();
  if (!options.policy.empty()) names = {options.policy};
  std::vector<PolicyOutcome> outcomes;
  for (const std::string_view name : names) {
    MOTLEY_TRY(const auto policy, make_policy(name));
    MOTLEY_TRY(TraceOutcome outcome, simulate_trace(trace, pools, *policy, {}, steady_clock()));
    outcomes.push_back({std::string(name), std::move(outcome)});
  }
  return outcomes;
}

}  // namespace

Result<int> simulate_trace_command(const TraceOptions& options) {
  if (options.fleet.empty())
    return fail(ErrorCode::kUsage, "--trace needs --fleet FILE, the devices that the jobs share");
  MOTLEY_TRY(std::vector<TraceJob> trace, read_trace(options.trace, options.speeds));
  if (options.mix)
    for (TraceJob& job : trace) let_mix(&job);
  MOTLEY_TRY(const FleetSpec fleet, read_fleet(options.fleet));
  if (!options.convert.empty())
    MOTLEY_TRY_VOID(write_output_file(options.convert, trace_text(trace)));
  MOTLEY_TRY(const auto outcomes, outcomes_of(options, trace, pools_of(fleet)));
  if (!options.json) {
    std::printf("%zu jobs on %zu devices, simulated\n\n%s", trace.size(), fleet.devices.size(),
                trace_table(outcomes).c_str());
    return 0;
  }
  nlohmann::json document{{"version", kTraceReportVersion},  {"kind", "simulated"},
                          {"trace", options.trace},          {"jobs", trace.size()},
                          {"devices", fleet.devices.size()}, {"policies", nlohmann::json::array()}};
  for (const PolicyOutcome& outcome : outcomes) document["policies"].push_back(to_json(outcome));
  std::printf("%s\n", document.dump(2).c_str());
  return 0;
}

}  // namespace motley
