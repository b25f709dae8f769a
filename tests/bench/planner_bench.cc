// How long the planner takes, and how far from a proven optimum it stops. Arguments: [--json]
// [CASE].

#include <algorithm>
#include <cstdio>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "planner/plain/plan_again.h"
#include "planner/plain/search.h"
#include "tests/bench/pipelines_bench_cases.h"
#include "tests/bench/planner_case.h"
#include "tests/bench/planner_stress.h"
#include "tests/bench/rows.h"
#include "tests/bench/timed_search.h"
#include "tests/support/planning_case.h"

namespace motley {
namespace {

using testing::PlanningCase;

constexpr int kUnlike[] = {4, 8, 16, 64, 256, 1000, 1024, 16384};
/// Types of devices that are exactly alike, and devices.
constexpr std::pair<int, int> kAlike[] = {{2, 64},   {3, 64},    {2, 1024},
                                          {3, 1024}, {2, 16384}, {3, 16384}};
constexpr int kDevicesOfAHost = 8;
constexpr int kHostsOfARack = 4;
constexpr int kSamplesOfADevice = 16;

struct Card {
  const char* type;
  double per_sample;
  int largest_micro_batch;
};
constexpr Card kCards[] = {
    {"card-a", 0.010, 32}, {"card-b", 0.016, 16}, {"card-c", 0.027, 24}, {"card-d", 0.043, 8}};

std::string host(int number) { return "host" + std::to_string(number); }

/// Hosts of eight unlike cards, no two of which measured quite alike, in racks of four.
PlanningCase unlike(int devices) {
  std::mt19937 random(1);
  const auto about = [&](double value) {
    return value * std::uniform_real_distribution(0.97, 1.03)(random);
  };
  PlanningCase problem(kSamplesOfADevice * devices);
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

/// Hosts of eight cards of one of the types, all of a type alike, and all links.
PlanningCase alike(int types, int devices) {
  PlanningCase problem(kSamplesOfADevice * devices);
  for (int i = 0; i < devices; ++i) {
    const Card& card = kCards[i / kDevicesOfAHost % types];
    problem.add({.host = host(i / kDevicesOfAHost),
                 .type = card.type,
                 .fixed = 0.004,
                 .per_sample = card.per_sample,
                 .step_overhead = 0.002,
                 .update = 0.2 * card.per_sample,
                 .largest_micro_batch = card.largest_micro_batch});
  }
  const int hosts = (devices + kDevicesOfAHost - 1) / kDevicesOfAHost;
  for (int a = 0; a < hosts; ++a)
    for (int b = a; b < hosts; ++b)
      problem.add_link(host(a), host(b), a == b ? 5e-6 : 3e-5, a == b ? 20e9 : 2.5e9);
  return problem;
}

/// Measures searches of plans, case by case.
class PlannerBench {
 public:
  PlannerBench(bool json, std::string only) : json_(json), only_(std::move(only)) {}

  bool wants(const std::string& name) const { return only_.empty() || only_ == name; }

  /// False when there is no plan.
  bool measure(const std::string& name, const PlanRequest& request, double gap_limit) {
    const auto timed = time_search(name, [&] { return plan_search(request); });
    if (!timed) return false;
    const SearchRecord& search = timed->plan.search;
    rows_.add({name, "plan_seconds", "s", "lower", timed->seconds});
    rows_.add({name, "gap", "ratio", "lower", search.gap(), gap_limit});
    if (json_) return true;
    std::printf("%-16s %9.4f s   gap %.1e   %lld nodes   %d of %d devices used, step %.4f s\n",
                name.c_str(), timed->seconds, search.gap(), static_cast<long long>(search.nodes),
                timed->plan.world_size(), static_cast<int>(std::ssize(request.fleet.devices)),
                search.step_seconds);
    std::fflush(stdout);
    return true;
  }

  Rows* rows() { return &rows_; }
  void print() const {
    if (json_) rows_.print();
  }

 private:
  const bool json_;
  const std::string only_;
  Rows rows_{"planner"};
};

/// What is promised of fleets so large.
double gap_limit(int devices) { return devices > 1024 ? 0.03 : 0; }

/// Planning again when one of the devices that a plan uses is lost.
bool measure_again(int devices, const std::string& name, PlannerBench* bench) {
  PlanningCase problem = unlike(devices);
  const Result<Plan> plan = plan_search(problem.request());
  if (!plan) return false;
  const std::string& lost = plan->ranks[plan->ranks.size() / 2].device;
  std::erase_if(problem.fleet.devices, [&](const DeviceSpec& spec) { return spec.id == lost; });
  PlanRequest request = problem.request();
  request.previous = &*plan;
  return bench->measure(name, request, kEnoughAgain);
}

int run(bool json, const std::string& only) {
  PlannerBench bench(json, only);
  for (const int devices : kUnlike) {
    const std::string name = "synthetic/" + std::to_string(devices);
    if (!bench.wants(name)) continue;
    const PlanningCase problem = unlike(devices);
    if (!bench.measure(name, problem.request(), gap_limit(devices))) return 1;
  }
  for (const auto& [types, devices] : kAlike) {
    const std::string name = "alike-" + std::to_string(types) + "/" + std::to_string(devices);
    if (!bench.wants(name)) continue;
    const PlanningCase problem = alike(types, devices);
    if (!bench.measure(name, problem.request(), gap_limit(devices))) return 1;
  }
  for (const int devices : {64, 1024}) {
    const std::string name = "replan/" + std::to_string(devices);
    if (bench.wants(name) && !measure_again(devices, name, &bench)) return 1;
  }
  if (!run_pipeline_cases(json, only, bench.rows())) return 1;
  if (bench.rows()->empty()) {
    std::fprintf(stderr, "planner: no case is called '%s' (see tests/bench/README.md)\n",
                 only.c_str());
    return 2;
  }
  bench.print();
  return 0;
}

}  // namespace
}  // namespace motley

int main(int argc, char** argv) {
  if (const auto request = motley::case_arguments(argc, argv)) return motley::plan_case(*request);
  if (const auto request = motley::stress_arguments(argc, argv))
    return motley::run_stress(*request);
  const auto [json, only] = motley::bench_arguments(argc, argv);
  return motley::run(json, only);
}
