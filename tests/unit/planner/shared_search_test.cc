// The search for pipelines whose stages devices may share, against every such pipeline there is, on
// cases small enough to try all.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <map>
#include <optional>
#include <random>
#include <set>

#include "core/pipeline.h"
#include "planner/costs/cost_model.h"
#include "planner/pipelines/pipeline_search.h"
#include "planner/pipelines/pipeline_space.h"
#include "planner/plain/grain_table.h"
#include "planner/search_forms.h"
#include "tests/support/layered_case.h"
#include "tests/support/planning_case.h"

namespace motley {
namespace {

using ::testing::HasSubstr;
using testing::PlanningCase;

constexpr int64_t kKiB = 1 << 10;

int draw(std::mt19937& random, int low, int high) {
  return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
}

LayerCurve layer_curve(const std::string& layer, double fixed, double per_sample) {
  LayerCurve curve;
  curve.layer = layer;
  for (const int size : {1, 2, 4, 8}) {
    const double seconds = fixed + per_sample * size;
    curve.points.push_back({size, seconds, 0.01, 5, seconds * (size > 2 ? 0.3 : 0.4)});
  }
  curve.fit = fit_curve(curve.points);
  return curve;
}

/// A layer whole and, not quite in proportion, at two shares.
void add_curves(const std::string& layer, double fixed, double per_sample, int heads,
                std::mt19937& random, DeviceProfile* type) {
  type->curves.push_back(layer_curve(layer, fixed, per_sample));
  for (const double share : {1.0 / heads, 1 - 1.0 / heads}) {
    const double work = per_sample * share * draw(random, 90, 120) / 100;
    type->curves.push_back(layer_curve(layer, fixed * draw(random, 5, 10) / 10, work));
    type->curves.back().share = share;
    type->curves.back().sums = layer == "block" ? 4 : 1;
    type->curves.back().sum_bytes_per_sample = layer == "block" ? 2000 : 500;
    if (heads == 2) return;  // both shares are the same
  }
}

DeviceProfile random_type(int heads, std::mt19937& random) {
  const double speed = draw(random, 1, 8);
  DeviceProfile type;
  for (const auto& [layer, work] :
       {std::pair("embedding", 0.2), std::pair("block", 1.0), std::pair("head", 0.7)})
    add_curves(layer, 0.0001 * draw(random, 0, 20), 0.01 * work / speed, heads, random, &type);
  type.step_overhead_seconds = 0.0001 * draw(random, 0, 10);
  type.update_seconds = 0.001 * draw(random, 0, 5);
  type.memory_limit = Bytes(kKiB * draw(random, 2500, 20000));
  return type;
}

/// Up to four devices of up to three types on one host or two. Links cost something where a step is
/// one grain: several replicas would sum gradients over them.
PlanningCase random_shared_case(std::mt19937& random, int most_devices) {
  PlanningCase problem(draw(random, 2, 6));
  const int heads = draw(random, 2, most_devices > 3 ? 3 : 4);
  problem.job.model = {"gpt", draw(random, 1, 2), heads, 12, 16, 37};
  std::vector<DeviceProfile> types;
  for (int i = draw(random, 1, 3); i > 0; --i) types.push_back(random_type(heads, random));
  const int hosts = draw(random, 1, 2);
  for (int i = draw(random, 2, most_devices); i > 0; --i) {
    const int type = draw(random, 0, static_cast<int>(types.size()) - 1);
    problem.add({.host = "host" + std::to_string(draw(random, 1, hosts)),
                 .type = "card" + std::to_string(type)});
    DeviceProfile& device = problem.profile.devices.back();
    const DeviceProfile& like = types[static_cast<size_t>(type)];
    device.curves = like.curves;
    device.memory.clear();
    device.step_overhead_seconds = like.step_overhead_seconds;
    device.update_seconds = like.update_seconds;
    device.memory_limit = like.memory_limit;
  }
  if (draw(random, 0, 1) == 0) {
    problem.job.train.grain = problem.job.train.global_batch;
    for (const auto& [a, b] :
         {std::pair("host1", "host1"), std::pair("host2", "host2"), std::pair("host1", "host2")})
      problem.add_link(a, b, 1e-5 * draw(random, 0, 20), 1e6 * draw(random, 1, 200));
  }
  return problem;
}

/// Of a member with so many of the heads.
LayerMemory memory_of(const std::string& layer, int micro_batch, int heads, int all) {
  const auto part = [&](int64_t bytes) { return Bytes(bytes * heads / all); };
  return {.fixed = part(kKiB * (layer == "head" ? 3000 : 2000)),
          .saved = part(kKiB * 400 * micro_batch) + Bytes(kKiB * 100 * micro_batch),
          .transient = part(kKiB * 1000)};
}

CountLayers counted_layers(const ModelSpec& model) {
  return [model](const LayersToCount& asked) -> Result<LayerMemoryTable> {
    LayerMemoryTable table;
    std::vector<int> heads = asked.heads;
    if (heads.empty()) heads = {model.heads};
    for (const char* const layer : {"embedding", "block", "head"})
      for (const int own : heads)
        for (const int size : asked.micro_batches)
          table[{layer, own, size}] = memory_of(layer, size, own, model.heads);
    return table;
  };
}

std::string kind_of(LayerIndex layer, const ModelSpec& model) {
  if (layer == 0) return "embedding";
  return layer <= model.layers ? "block" : "head";
}

Result<std::vector<RankMemory>> counted_plan(const Plan& plan, const ModelSpec& model) {
  std::vector<RankMemory> memory(plan.ranks.size());
  for (size_t r = 0; r < plan.replicas.size(); ++r) {
    const ReplicaPlan& replica = plan.replicas[r];
    const auto stages = static_cast<int>(replica.stages.size());
    const auto count = static_cast<int>(micro_batches_of(plan, static_cast<int>(r)).size());
    for (int s = 0; s < stages; ++s) {
      const StagePlan& stage = replica.stages[static_cast<size_t>(s)];
      for (size_t member = 0; member < stage.ranks.size(); ++member) {
        const auto heads = static_cast<int>(std::lround(stage.shares[member] * model.heads));
        Bytes sum{0}, transient{0};
        if (stages == 1)
          sum = sum - testing::tied_bytes(
                          model, memory_of("embedding", 1, heads, model.heads).fixed, heads);
        for (LayerIndex layer = stage.first_layer; layer <= stage.last_layer; ++layer) {
          const LayerMemory one =
              memory_of(kind_of(layer, model), replica.micro_batch, heads, model.heads);
          sum += one.fixed + Bytes(one.saved.value() * most_in_flight(stages, s, count));
          transient = std::max(transient, one.transient);
        }
        memory[static_cast<size_t>(stage.ranks[member].value())].total = sum + transient;
      }
    }
  }
  return memory;
}

MemoryCounter counter_for(const PlanningCase& problem) {
  return {[&problem](const Plan& plan) { return counted_plan(plan, problem.job.model); },
          counted_layers(problem.job.model)};
}

/// Every way to compute a step: each set of devices divided into stages in every way and order,
/// with all shares of whole heads, cut everywhere, in every micro-batch, priced one by one by
/// predict(). Where the job wants so many devices in each stage, no others.
class EveryPlan {
 public:
  explicit EveryPlan(const PlanningCase& problem) : problem_(problem) {}

  /// Seconds of the best step; infinite where nothing fits.
  double run() {
    const size_t all = size_t{1} << devices();
    // best[mask][g][s]: of g grains on some of the devices of `mask`, s: one of them is short.
    std::vector<std::vector<std::array<double, 2>>> best(
        all,
        std::vector<std::array<double, 2>>(static_cast<size_t>(grains()) + 1, {kNever, kNever}));
    for (size_t mask = 0; mask < all; ++mask) best[mask][0][0] = 0;
    for (size_t mask = 1; mask < all; ++mask)
      for (size_t set = mask; set > 0; set = (set - 1) & mask)
        for (int own = 1; own <= grains(); ++own)
          for (const size_t shorted : {0, 1}) {
            if (shorted > 0 && missing() == 0) continue;
            const double seconds = alone(set, own * grain() - (shorted > 0 ? missing() : 0));
            for (int others = 0; own + others <= grains(); ++others)
              for (size_t before = 0; before + shorted < 2; ++before) {
                double& found = best[mask][static_cast<size_t>(own + others)][before + shorted];
                found = std::min(
                    found,
                    std::max(seconds, best[mask ^ set][static_cast<size_t>(others)][before]));
              }
          }
    return best.back()[static_cast<size_t>(grains())][missing() > 0 ? 1 : 0];
  }

  /// Seconds of the quickest step of a single replica, with what its ends exchange.
  double single_seconds() const { return single_; }

 private:
  struct Stage {
    std::vector<int> devices;
    std::vector<int> heads;
  };

  int devices() const { return static_cast<int>(problem_.fleet.devices.size()); }
  int grain() const { return problem_.job.train.grain.value_or(1); }
  int batch() const { return problem_.job.train.global_batch; }
  int grains() const { return (batch() + grain() - 1) / grain(); }
  int missing() const { return grains() * grain() - batch(); }
  const DeviceSpec& spec(int device) const {
    return problem_.fleet.devices[static_cast<size_t>(device)];
  }

  double alone(size_t set, int samples) {
    const auto [known, is_new] = alone_.try_emplace({set, samples}, kNever);
    if (!is_new) return known->second;
    tried_.clear();
    std::vector<Stage> stages;
    divide(set, samples, &stages, &known->second);
    return known->second;
  }

  void divide(size_t left, int samples, std::vector<Stage>* stages, double* best) {
    if (left == 0) return try_row(*stages, samples, best);
    const std::optional<int>& wanted = problem_.job.parallel.tensor;
    for (size_t own = left; own > 0; own = (own - 1) & left) {
      if (wanted && std::popcount(own) != *wanted) continue;
      stages->emplace_back();
      for (int device = 0; device < devices(); ++device)
        if (own >> device & 1) stages->back().devices.push_back(device);
      if (on_one_host(stages->back()))
        deal_heads(problem_.job.model.heads, left ^ own, samples, stages, best);
      stages->pop_back();
    }
  }

  bool on_one_host(const Stage& stage) const {
    return std::all_of(stage.devices.begin(), stage.devices.end(), [&](int device) {
      return spec(device).host == spec(stage.devices.front()).host;
    });
  }

  /// Types in the order of their first devices; of a type those that have more come first.
  void deal_heads(int heads, size_t left, int samples, std::vector<Stage>* stages, double* best) {
    std::vector<int>& devices = stages->back().devices;
    std::stable_sort(devices.begin(), devices.end(),
                     [&](int a, int b) { return first_alike(a) < first_alike(b); });
    const Stage stage = stages->back();  // what follows may move it
    const size_t member = stage.heads.size();
    if (member == stage.devices.size()) {
      if (heads == 0) divide(left, samples, stages, best);
      return;
    }
    const bool alike =
        member > 0 && first_alike(stage.devices[member]) == first_alike(stage.devices[member - 1]);
    for (int own = 1; own <= (alike ? std::min(heads, stage.heads.back()) : heads); ++own) {
      stages->back().heads.push_back(own);
      deal_heads(heads - own, left, samples, stages, best);
      stages->back() = stage;
    }
  }

  int first_alike(int device) const {
    for (int other = 0; other < device; ++other)
      if (spec(other).type == spec(device).type && spec(other).host == spec(device).host)
        return other;
    return device;
  }

  void try_row(const std::vector<Stage>& stages, int samples, double* best) {
    std::vector<int> row;  // devices of a type and host are alike
    for (const Stage& stage : stages) {
      for (size_t i = 0; i < stage.devices.size(); ++i) {
        row.push_back(first_alike(stage.devices[i]));
        row.push_back(stage.heads[i]);
      }
      row.push_back(-1);
    }
    if (!tried_.insert(row).second) return;
    for (const int size : {1, 2, 3, 4, 6, batch()})
      if (size % grain() == 0) try_cuts(stages, size, samples, {}, 0, best);
  }

  void try_cuts(const std::vector<Stage>& stages, int size, int samples, std::vector<int> ends,
                int first, double* best) {
    const int layers = layer_count(problem_.job.model);
    if (ends.size() == stages.size()) {
      if (first == layers) *best = std::min(*best, price(stages, size, samples, ends));
      return;
    }
    for (int last = first; last < layers; ++last) {
      ends.push_back(last);
      try_cuts(stages, size, samples, ends, last + 1, best);
      ends.pop_back();
    }
  }

  double price(const std::vector<Stage>& stages, int size, int samples,
               const std::vector<int>& ends) {
    Plan plan;
    plan.global_batch = samples;
    plan.grain = grain();
    ReplicaPlan& replica = plan.replicas.emplace_back();
    replica.micro_batch = size;
    replica.grains = (samples + grain() - 1) / grain();
    for (size_t s = 0; s < stages.size(); ++s) {
      StagePlan stage;
      stage.first_layer = s == 0 ? 0 : ends[s - 1] + 1;
      stage.last_layer = ends[s];
      for (size_t i = 0; i < stages[s].devices.size(); ++i) {
        const DeviceSpec& device = spec(stages[s].devices[i]);
        stage.ranks.emplace_back(plan.world_size());
        stage.shares.push_back(static_cast<double>(stages[s].heads[i]) / problem_.job.model.heads);
        plan.ranks.push_back({device.id, device.host, device.type});
      }
      replica.stages.push_back(stage);
    }
    const auto memory = *counted_plan(plan, problem_.job.model);
    for (size_t rank = 0; rank < plan.ranks.size(); ++rank)
      if (memory[rank].total >
          usable_memory(*problem_.profile.find(plan.ranks[rank].device), kMemoryHeadroom))
        return kNever;
    plan.owners = even_ownership(plan, problem_.job.model);
    EXPECT_TRUE(predict(problem_.request(), &plan));
    if (samples == batch()) single_ = std::min(single_, plan.prediction.step_seconds);
    return plan.prediction.step_seconds - plan.prediction.communication_seconds;
  }

  const PlanningCase& problem_;
  double single_ = kNever;
  std::map<std::pair<size_t, int>, double> alone_;
  std::set<std::vector<int>> tried_;
};

bool shares_a_stage(const Plan& plan) {
  for (const ReplicaPlan& replica : plan.replicas)
    for (const StagePlan& stage : replica.stages)
      if (stage.ranks.size() > 1) return true;
  return false;
}

TEST(SharedSearch, OfPlansThatShareEveryStageTheBestAndABound) {
  std::mt19937 random(20261129);
  int found = 0;
  for (int i = 0; i < 60; ++i) {
    PlanningCase problem = random_shared_case(random, 4);
    SCOPED_TRACE("case " + std::to_string(i));
    problem.fleet = in_order(problem.request());
    problem.job.parallel.tensor = 2;
    EveryPlan every(problem);
    const double best = every.run();
    const double least = problem.profile.links.empty() ? best : every.single_seconds();
    const Result<Plan> plan = search_pipelines(problem.request(), counter_for(problem));
    EXPECT_EQ(plan.has_value(), best < kNever);
    if (!plan) continue;
    ++found;
    const double seconds = plan->prediction.step_seconds - plan->prediction.communication_seconds;
    EXPECT_NEAR(seconds / best, 1, 1e-6);
    EXPECT_GT(plan->search.lower_bound_step_seconds, 0);
    EXPECT_LE(plan->search.lower_bound_step_seconds, least * (1 + 1e-9));
  }
  EXPECT_GT(found, 15);
}

TEST(SharedSearch, FindsTheBestOfAllPlans) {
  std::mt19937 random(20261124);
  int found = 0, none = 0, shared = 0, only_so = 0, several = 0;
  for (int i = 0; i < 220; ++i) {
    PlanningCase problem = random_shared_case(random, i % 8 == 0 ? 4 : 3);
    SCOPED_TRACE("case " + std::to_string(i));
    problem.fleet = in_order(problem.request());  // shares of a stage are of types in this order
    EveryPlan every(problem);
    const double best = every.run();
    // Where sums take time, all of a step is one grain.
    const double least = problem.profile.links.empty() ? best : every.single_seconds();
    const Result<Plan> plan = search_pipelines(problem.request(), counter_for(problem));
    if (!plan) {
      EXPECT_EQ(plan.error().code, ErrorCode::kNoPlan) << plan.error().message;
      EXPECT_EQ(best, kNever) << plan.error().message;
      ++none;
      continue;
    }
    ++found;
    const double seconds = plan->prediction.step_seconds - plan->prediction.communication_seconds;
    EXPECT_NEAR(seconds / best, 1, 1e-6);
    EXPECT_LE(plan->search.lower_bound_step_seconds, least * (1 + 1e-9));
    EXPECT_LE(seconds, plan->search.lower_bound_step_seconds * (1 + 1e-5))
        << "proved, since all was tried";
    EXPECT_TRUE(validate(*plan, problem.job.model));
    several += plan->replicas.size() > 1;
    if (!shares_a_stage(*plan)) continue;
    ++shared;
    problem.job.parallel.tensor = 1;
    const Result<Plan> single = search_pipelines(problem.request(), counter_for(problem));
    only_so += !single;
    if (single) {
      EXPECT_GE(single->prediction.step_seconds, plan->prediction.step_seconds);
      EXPECT_FALSE(shares_a_stage(*single));
    }
  }
  std::printf("%d found, %d not, %d share, %d only so, %d of several replicas\n", found, none,
              shared, only_so, several);
  EXPECT_GT(found, 120);
  EXPECT_GT(none, 5);
  EXPECT_GT(shared, 40);
  EXPECT_GT(only_so, 5);
  EXPECT_GT(several, 20);
}

}  // namespace
}  // namespace motley
