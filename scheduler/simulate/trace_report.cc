#include "scheduler/simulate/trace_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "scheduler/report/table.h"

namespace motley {
namespace {

constexpr double kTail = 0.99;

std::string hours(double seconds) { return format_fixed(seconds / 3600, 2); }

std::string milliseconds(double seconds) { return format_fixed(seconds * 1e3, 2); }

double mean_decision(const TraceOutcome& outcome) {
  return outcome.decision_seconds / std::max(1, outcome.decisions);
}

}  // namespace

std::vector<Pool> pools_of(const FleetSpec& fleet) {
  std::vector<Pool> pools;
  for (const DeviceSpec& device : fleet.devices) {
    const auto pool = std::find_if(pools.begin(), pools.end(),
                                   [&](const Pool& known) { return known.type == device.type; });
    if (pool == pools.end())
      pools.push_back({device.type, 1});
    else
      ++pool->devices;
  }
  return pools;
}

std::string trace_table(const std::vector<PolicyOutcome>& outcomes) {
  TextTable table({{"policy", Align::kLeft},
                   {"mean h"},
                   {"p99 h"},
                   {"makespan h"},
                   {"busy"},
                   {"fairness"},
                   {"stops"},
                   {"decisions"},
                   {"mean ms"},
                   {"slowest ms"}});
  for (const auto& [policy, outcome] : outcomes)
    table.add_row({policy, hours(outcome.mean_completion()),
                   hours(outcome.completion_quantile(kTail)), hours(outcome.makespan),
                   format_percent(outcome.utilisation()), format_fixed(outcome.fairness(), 3),
                   std::to_string(outcome.stops()), std::to_string(outcome.decisions),
                   milliseconds(mean_decision(outcome)),
                   milliseconds(outcome.slowest_decision_seconds)});
  return table.to_string();
}

nlohmann::json to_json(const PolicyOutcome& told) {
  const TraceOutcome& outcome = told.outcome;
  return {{"policy", told.policy},
          {"mean_completion_seconds", outcome.mean_completion()},
          {"p99_completion_seconds", outcome.completion_quantile(kTail)},
          {"makespan_seconds", outcome.makespan},
          {"utilisation", outcome.utilisation()},
          {"fairness", outcome.fairness()},
          {"stops", outcome.stops()},
          {"decisions", outcome.decisions},
          {"mean_decision_seconds", mean_decision(outcome)},
          {"slowest_decision_seconds", outcome.slowest_decision_seconds}};
}

}  // namespace motley
