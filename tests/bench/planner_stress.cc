#include "tests/bench/planner_stress.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "planner/grid/foreign_costs.h"
#include "planner/grid/grid_search.h"
#include "tests/bench/rows.h"
#include "tests/bench/stress_profiles.h"

namespace motley {
namespace {

constexpr int kStressLayers[] = {26, 50, 98, 150};
constexpr int kMostStressTypes = 4;
constexpr int kStressDevices[] = {8, 64, 1024, 16384};
/// Of any layers and types.
constexpr StressProfile kStressKinds[] = {{},
                                          {.tight = true},
                                          {.uneven = true},
                                          {.uneven = true, .tight = true},
                                          {.uneven = true, .odd = true}};
constexpr int kDevicesOfStressHosts = 4;
constexpr double kStressHeadroom = 0.05;

/// What is promised of so many devices.
double promised_gap(int devices) { return devices <= 64 ? 0 : devices <= 1024 ? 0.01 : 0.03; }
double promised_seconds(int devices) {
  return devices <= 8 ? 0.05 : devices <= 64 ? 0.3 : devices <= 1024 ? 5 : 60;
}

/// 98x3/1024/uneven-tight
std::string stress_name(const StressProfile& of, int devices) {
  std::string name =
      std::to_string(of.layers) + "x" + std::to_string(of.types) + "/" + std::to_string(devices);
  name += of.odd ? "/odd" : of.uneven ? "/uneven" : "/even";
  return of.tight ? name + "-tight" : name;
}

/// As many of each type as can be, on hosts of one.
std::vector<GridType> stress_fleet(const ForeignProfile& profile, int devices) {
  std::vector<GridType> fleet;
  int types = static_cast<int>(profile.devices.size());
  for (const auto& [name, device] : profile.devices) {
    const int own = devices / types--;
    devices -= own;
    GridType& type = fleet.emplace_back(GridType{name, device.memory, {}});
    for (int left = own; left > 0; left -= kDevicesOfStressHosts)
      type.on_hosts.push_back(std::min(left, kDevicesOfStressHosts));
  }
  return fleet;
}

double peak_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024;
}

/// Cases of which no plan is possible say so, and how long that took.
void measure_stress(const StressProfile& wanted, int devices, bool json, Rows* rows) {
  const std::string name = stress_name(wanted, devices);
  const ForeignProfile profile = stress_profile(wanted);
  const ForeignCosts costs(profile, stress_fleet(profile, devices), profile.global_batch,
                           kStressHeadroom);
  const double start = thread_seconds();
  const Result<GridResult> found = search_grid(costs, costs.groups());
  const double seconds = thread_seconds() - start;
  rows->add({name, "plan_seconds", "s", "lower", seconds, promised_seconds(devices)});
  if (found)
    rows->add({name,
               "gap",
               "ratio",
               "lower",
               found->search.gap(),
               promised_gap(devices),
               {},
               "simulated"});
  if (json) return;
  std::printf("%-24s %8.3f s", name.c_str(), seconds);
  if (found)
    std::printf("   gap %-8.2g %9.4f s a step, %d x %d stages, micro-batch %d   %.1f M nodes",
                found->search.gap(), found->search.step_seconds, found->plan.replicas,
                static_cast<int>(std::ssize(found->plan.stages)), found->plan.micro_batch,
                static_cast<double>(found->search.nodes) / 1e6);
  else
    std::printf("   no plan");
  std::printf("\n");
  std::fflush(stdout);
}

}  // namespace

std::optional<StressRequest> stress_arguments(int argc, char** argv) {
  StressRequest request;
  bool wanted = false;
  for (int i = 1; i < argc; ++i)
    if (std::strcmp(argv[i], "--stress") == 0)
      wanted = true;
    else if (std::strcmp(argv[i], "--json") == 0)
      request.json = true;
    else
      request.only = argv[i];
  return wanted ? std::optional(request) : std::nullopt;
}

int run_stress(const StressRequest& request) {
  Rows rows("planner");
  for (const int devices : kStressDevices)
    for (const int layers : kStressLayers)
      for (int types = 2; types <= kMostStressTypes; ++types)
        for (StressProfile wanted : kStressKinds) {
          wanted.layers = layers;
          wanted.types = types;
          if (stress_name(wanted, devices).starts_with(request.only))
            measure_stress(wanted, devices, request.json, &rows);
        }
  rows.add({"stress", "peak_bytes", "B", "lower", peak_bytes(), 2e9});
  if (request.json)
    rows.print();
  else
    std::printf("peak %.0f MB\n", peak_bytes() / 1e6);
  return 0;
}

}  // namespace motley
