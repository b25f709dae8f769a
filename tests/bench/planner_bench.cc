// How long the planner takes, and how far from a proven optimum it stops. Arguments: [--json]
// [CASE].

#include <algorithm>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "core/median.h"
#include "planner/search.h"
#include "tests/bench/pipelines_bench_cases.h"
#include "tests/bench/rows.h"
#include "tests/support/planning_case.h"

namespace motley {
namespace {

using testing::PlanningCase;

constexpr int kDevices[] = {4, 8, 16, 64, 256, 1000, 1024};
constexpr int kDevicesOfAHost = 8;
constexpr int kHostsOfARack = 4;
constexpr int kSamplesOfADevice = 16;
constexpr double kEnoughSeconds = 2;

struct Card {
  const char* type;
  double per_sample;
  int largest_micro_batch;
};
constexpr Card kCards[] = {
    {"card-a", 0.010, 32}, {"card-b", 0.016, 16}, {"card-c", 0.027, 24}, {"card-d", 0.043, 8}};

/// Hosts of eight unlike cards, no two of which measured quite alike, in racks of four.
PlanningCase synthetic(int devices) {
  std::mt19937 random(1);
  const auto about = [&](double value) {
    return value * std::uniform_real_distribution(0.97, 1.03)(random);
  };
  PlanningCase problem(kSamplesOfADevice * devices);
  const auto host = [](int number) { return "host" + std::to_string(number); };
  for (int i = 0; i < devices; ++i) {
    const Card& card = kCards[random() % std::size(kCards)];
    problem.add({.host = host(i / kDevicesOfAHost),
                 .type = card.type,
                 .fixed = about(0.004),
                 .per_sample = about(card.per_sample),
                 .step_overhead = about(0.002),
                 .update = about(0.2 * card.per_sample),
                 .largest_micro_batch = card.largest_micro_batch});
  }
  const int hosts = (devices + kDevicesOfAHost - 1) / kDevicesOfAHost;
  for (int a = 0; a < hosts; ++a) {
    for (int b = a; b < hosts; ++b) {
      const bool same_rack = a / kHostsOfARack == b / kHostsOfARack;
      problem.add_link(host(a), host(b), about(a == b ? 5e-6 : 3e-5),
                       about(a == b      ? 20e9
                             : same_rack ? 10e9
                                         : 2.5e9));
    }
  }
  return problem;
}

int run(bool json, const std::string& only) {
  Rows rows("planner");
  for (const int devices : kDevices) {
    const std::string name = "synthetic/" + std::to_string(devices);
    if (!only.empty() && only != name) continue;
    const PlanningCase problem = synthetic(devices);
    std::vector<double> seconds;
    SearchRecord search;
    int used = 0;
    for (double total = 0; seconds.empty() || (seconds.size() < 5 && total < kEnoughSeconds);) {
      const double start = thread_seconds();
      const Result<Plan> plan = plan_search(problem.request());
      seconds.push_back(thread_seconds() - start);
      total += seconds.back();
      if (!plan) {
        std::fprintf(stderr, "%s: %s\n", name.c_str(), plan.error().message.c_str());
        return 1;
      }
      search = plan->search;
      used = plan->world_size();
    }
    rows.add({name, "plan_seconds", "s", "lower", *median(seconds)});
    rows.add({name, "gap", "ratio", "lower", search.gap, 0.0});
    if (json) continue;
    std::printf("%-16s %9.4f s   gap %.1e   %lld nodes   %d of %d devices used, step %.4f s\n",
                name.c_str(), *median(seconds), search.gap, static_cast<long long>(search.nodes),
                used, devices, search.step_seconds);
    std::fflush(stdout);
  }
  if (!run_pipeline_cases(json, only, &rows)) return 1;
  if (json) rows.print();
  return 0;
}

}  // namespace
}  // namespace motley

int main(int argc, char** argv) {
  const auto [json, only] = motley::bench_arguments(argc, argv);
  return motley::run(json, only);
}
