#include "tests/bench/pipelines_bench_cases.h"

#include <cstdio>
#include <functional>
#include <vector>

#include "core/median.h"
#include "planner/search_forms.h"
#include "tests/support/layered_case.h"

namespace motley {
namespace {

using testing::add_layered;
using testing::LayeredDevice;
using testing::PlanningCase;

constexpr double kEnoughPipelineSeconds = 2;
/// Of the quickest card, one sample through a block of the smaller model.
constexpr double kBlockSeconds = 0.0008;

struct UnlikeCard {
  const char* type;
  double slower;
  int64_t memory_mib;
};
/// From a small card of ten years ago to a large one of today.
constexpr UnlikeCard kUnlike[] = {
    {"a", 1, 24 * 1024},  {"b", 1.5, 16 * 1024}, {"c", 1.9, 12 * 1024}, {"d", 2.6, 11 * 1024},
    {"e", 3.7, 8 * 1024}, {"f", 4.4, 8 * 1024},  {"g", 5.5, 6 * 1024},  {"h", 8.3, 4 * 1024}};

LayeredDevice card_of(const UnlikeCard& card, int host, double work, double memory) {
  const double block = kBlockSeconds * work * card.slower;
  return {.host = "host" + std::to_string(host),
          .type = card.type,
          .per_sample = block,
          .fixed = 0.15 * block,
          .overhead = 20e-6,
          .update = 6 * block,
          .memory_mib = static_cast<int64_t>(memory * static_cast<double>(card.memory_mib))};
}

void link_hosts(int hosts, PlanningCase* problem) {
  const auto host = [](int number) { return "host" + std::to_string(number); };
  for (int a = 0; a < hosts; ++a)
    for (int b = a; b < hosts; ++b)
      problem->add_link(host(a), host(b), a == b ? 30e-6 : 50e-6, a == b ? 8e9 : 1.25e9);
}

/// Cards of kUnlike in turn, `copies` of each, so many on a host.
PlanningCase fleet_of(const ModelSpec& model, int batch, const std::vector<int>& cards, int copies,
                      int of_a_host, double memory) {
  PlanningCase problem(batch);
  problem.job.model = model;
  const double work = 1.0 * model.width * model.width / (768 * 768);
  int devices = 0;
  for (int copy = 0; copy < copies; ++copy)
    for (const int card : cards)
      add_layered(card_of(kUnlike[card], devices++ / of_a_host, work, memory), &problem);
  link_hosts((devices + of_a_host - 1) / of_a_host, &problem);
  return problem;
}

struct PipelineCase {
  const char* name;
  std::function<PlanningCase()> make;
};

const std::vector<PipelineCase>& pipeline_cases() {
  using testing::kLargeGpt2;
  using testing::kSmallGpt2;
  static const std::vector<int> all{0, 1, 2, 3, 4, 5, 6, 7};
  static const std::vector<PipelineCase> cases{
      {"pipelines/8", [] { return fleet_of(kSmallGpt2, 64, all, 1, 8, 0.5); }},
      {"pipelines/8-none-holds", [] { return fleet_of(kSmallGpt2, 64, all, 1, 8, 0.16); }},
      {"pipelines/8-large", [] { return fleet_of(kLargeGpt2, 64, all, 1, 8, 1); }},
      {"pipelines/8-two-hosts", [] { return fleet_of(kSmallGpt2, 64, all, 1, 4, 0.16); }},
      {"pipelines/8-two-types",
       [] {
         return fleet_of(kSmallGpt2, 64, {1, 4}, 4, 8, 0.16);
       }},
      {"pipelines/8-three-types",
       [] {
         return fleet_of(kLargeGpt2, 128, {0, 0, 3, 5}, 2, 4, 1);
       }},
      {"pipelines/4",
       [] {
         return fleet_of(kSmallGpt2, 32, {0, 3, 4, 7}, 1, 4, 0.16);
       }},
      {"pipelines/6-large",
       [] {
         return fleet_of(kLargeGpt2, 64, {0, 0, 1, 1, 2, 3}, 1, 3, 1);
       }},
      {"pipelines/64",
       [] {
         return fleet_of(kSmallGpt2, 1024, {1, 4}, 32, 8, 0.16);
       }},
      {"pipelines/64-three-types",
       [] {
         return fleet_of(kSmallGpt2, 1024, {0, 2, 2, 5}, 16, 8, 0.16);
       }},
      {"pipelines/64-large",
       [] {
         return fleet_of(kLargeGpt2, 512, {0, 0, 2, 3}, 16, 4, 1);
       }},
  };
  return cases;
}

}  // namespace

bool run_pipeline_cases(bool json, const std::string& only, Rows* rows) {
  for (const auto& [name, make] : pipeline_cases()) {
    if (!only.empty() && only != name) continue;
    const PlanningCase problem = make();
    const MemoryCounter counter = testing::layer_bytes_counter(problem);
    std::vector<double> seconds;
    SearchRecord search;
    std::string shape;
    for (double total = 0;
         seconds.empty() || (seconds.size() < 5 && total < kEnoughPipelineSeconds);) {
      const double start = thread_seconds();
      const Result<Plan> plan = search_all_forms(problem.request(), counter);
      seconds.push_back(thread_seconds() - start);
      total += seconds.back();
      if (!plan) {
        std::fprintf(stderr, "%s: %s\n", name, plan.error().message.c_str());
        return false;
      }
      search = plan->search;
      shape.clear();
      for (const ReplicaPlan& replica : plan->replicas)
        shape += " " + std::to_string(replica.stages.size());
    }
    rows->add({name, "plan_seconds", "s", "lower", *median(seconds)});
    rows->add({name, "gap", "ratio", "lower", search.gap});
    if (json) continue;
    std::printf("%-24s %8.4f s   gap %.4f   %lld nodes   step %.6f s, stages%s\n", name,
                *median(seconds), search.gap, static_cast<long long>(search.nodes),
                search.step_seconds, shape.c_str());
    std::fflush(stdout);
  }
  return true;
}

}  // namespace motley
