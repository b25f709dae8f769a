#include "tests/bench/pipelines_bench_cases.h"

#include <cstdio>
#include <vector>

#include "planner/search_forms.h"
#include "tests/bench/timed_search.h"
#include "tests/support/cut_fleets.h"
#include "tests/support/layered_case.h"

namespace motley {
namespace {

using testing::PlanningCase;

constexpr size_t kShown = 80;  ///< of stages of all replicas
constexpr size_t kFewToReplan = 8;

/// `previous`: from that plan; null: from nothing.
bool time_plans(const std::string& name, const PlanningCase& problem, const Plan* previous,
                bool json, Rows* rows) {
  const MemoryCounter counter = testing::layer_bytes_counter(problem);
  PlanRequest request = problem.request();
  request.previous = previous;
  const auto timed = time_search(name, [&] { return search_all_forms(request, counter); });
  if (!timed) return false;
  const SearchRecord& search = timed->plan.search;
  std::string shape;
  for (const ReplicaPlan& replica : timed->plan.replicas)
    shape += " " + std::to_string(replica.stages.size());
  rows->add({name, "plan_seconds", "s", "lower", timed->seconds});
  rows->add({name, "gap", "ratio", "lower", search.gap()});
  if (json) return true;
  std::printf("%-24s %8.4f s   gap %.4f   %lld nodes   step %.6f s, stages%s\n", name.c_str(),
              timed->seconds, search.gap(), static_cast<long long>(search.nodes),
              search.step_seconds, shape.substr(0, kShown).c_str());
  std::fflush(stdout);
  return true;
}

}  // namespace

bool run_pipeline_cases(bool json, const std::string& only, Rows* rows) {
  std::vector<testing::CutFleet> fleets = testing::cut_fleets();
  const std::vector<testing::CutFleet>& large = testing::large_cut_fleets();
  fleets.insert(fleets.end(), large.begin(), large.end());
  for (const testing::CutFleet& fleet : fleets) {
    const std::string name = "pipelines/" + fleet.name, again = "replan-pipelines/" + fleet.name;
    if (only.empty() || only == name) {
      if (!time_plans(name, fleet.make(), nullptr, json, rows)) return false;
    }
    if (only.empty() || only == again) {
      PlanningCase problem = fleet.make();
      if (problem.fleet.devices.size() <= kFewToReplan) continue;
      const MemoryCounter counter = testing::layer_bytes_counter(problem);
      const Result<Plan> before = search_all_forms(problem.request(), counter);
      if (!before) {
        std::fprintf(stderr, "%s: %s\n", again.c_str(), before.error().message.c_str());
        return false;
      }
      std::erase_if(problem.fleet.devices, [&](const DeviceSpec& device) {
        return device.id == before->ranks.front().device;
      });
      if (!time_plans(again, problem, &*before, json, rows)) return false;
    }
  }
  return true;
}

}  // namespace motley
