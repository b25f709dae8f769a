// The search for pipelines against every pipeline there is, on cases small enough to try all.

#include "planner/pipelines/pipeline_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "core/pipeline.h"
#include "planner/costs/cost_model.h"
#include "planner/pipelines/pipeline_costs.h"
#include "planner/plain/grain_table.h"
#include "planner/search_forms.h"
#include "tests/support/planning_case.h"

namespace motley {
namespace {

using ::testing::HasSubstr;
using testing::PlanningCase;

constexpr int64_t kMiB = 1 << 20;

int draw(std::mt19937& random, int low, int high) {
  return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
}

LayerCurve layer_curve(const std::string& layer, double fixed, double per_sample) {
  LayerCurve curve;
  curve.layer = layer;
  for (const int size : {1, 2, 4, 8})
    curve.points.push_back(
        {size, fixed + per_sample * size, 0.01, 5, (fixed + per_sample * size) / 3});
  curve.fit = fit_curve(curve.points);
  return curve;
}

/// A type of device with curves of its own.
DeviceProfile random_type(std::mt19937& random) {
  const double speed = draw(random, 1, 8);
  DeviceProfile type;
  for (const auto& [layer, work] :
       {std::pair("embedding", 0.2), std::pair("block", 1.0), std::pair("head", 0.7)})
    type.curves.push_back(layer_curve(layer, 0.0001 * draw(random, 0, 20), 0.01 * work / speed));
  type.step_overhead_seconds = 0.0001 * draw(random, 0, 10);
  type.update_seconds = 0.001 * draw(random, 0, 5);
  type.memory_limit = Bytes(kMiB * draw(random, 4, 40));
  return type;
}

/// Devices of up to three types on one host, none of which was measured with the whole model.
PlanningCase random_cut_case(std::mt19937& random, int most_devices, int most_blocks) {
  PlanningCase problem(draw(random, 2, 7));
  problem.job.model = {"gpt", draw(random, 1, most_blocks), 2, 8, 16, 32};
  std::vector<DeviceProfile> types;
  for (int i = draw(random, 1, 3); i > 0; --i) types.push_back(random_type(random));
  for (int i = draw(random, 2, most_devices); i > 0; --i) {
    const int type = draw(random, 0, static_cast<int>(types.size()) - 1);
    problem.add({.type = "card" + std::to_string(type)});
    DeviceProfile& device = problem.profile.devices.back();
    const DeviceProfile& like = types[static_cast<size_t>(type)];
    device.curves = like.curves;
    device.memory.clear();
    device.step_overhead_seconds = like.step_overhead_seconds;
    device.update_seconds = like.update_seconds;
    device.memory_limit = like.memory_limit;
  }
  if (draw(random, 0, 3) == 0) problem.job.train.grain = 2;
  return problem;
}

/// Two MiB and one for each two samples in flight of a layer; three of a head.
LayerMemory memory_of(const std::string& layer, int micro_batch) {
  return {.fixed = Bytes(kMiB * (layer == "head" ? 3 : 2)),
          .saved = Bytes(kMiB * micro_batch / 2),
          .transient = Bytes(kMiB)};
}

Result<LayerMemoryTable> counted_layers(const LayersToCount& layers) {
  LayerMemoryTable table;
  for (const char* const layer : {"embedding", "block", "head"})
    for (const int size : layers.micro_batches) table[{layer, 2, size}] = memory_of(layer, size);
  return table;
}

/// What a rank of a plan of single-device stages needs, counted layer by layer.
Result<std::vector<RankMemory>> counted_plan(const Plan& plan, const ModelSpec& model) {
  std::vector<RankMemory> memory(plan.ranks.size());
  for (size_t r = 0; r < plan.replicas.size(); ++r) {
    const ReplicaPlan& replica = plan.replicas[r];
    const auto stages = static_cast<int>(replica.stages.size());
    const auto count = static_cast<int>(micro_batches_of(plan, static_cast<int>(r)).size());
    for (int s = 0; s < stages; ++s) {
      const StagePlan& stage = replica.stages[static_cast<size_t>(s)];
      Bytes sum(kMiB);
      for (LayerIndex layer = stage.first_layer; layer <= stage.last_layer; ++layer) {
        const LayerMemory one =
            memory_of(layer == model.layers + 1 ? "head" : "block", replica.micro_batch);
        sum += one.fixed + Bytes(one.saved.value() * most_in_flight(stages, s, count));
      }
      memory[static_cast<size_t>(stage.ranks.front().value())].total = sum;
    }
  }
  return memory;
}

MemoryCounter counter_for(const PlanningCase& problem) {
  return {[&problem](const Plan& plan) { return counted_plan(plan, problem.job.model); },
          counted_layers};
}

/// Every way to compute a step: each set of devices in every order, cut everywhere, in every
/// micro-batch, priced one by one by predict().
class EveryPipeline {
 public:
  explicit EveryPipeline(const PlanningCase& problem) : problem_(problem) {}

  /// Seconds of the best step; infinite where nothing fits.
  double run() {
    const auto devices = static_cast<int>(problem_.fleet.devices.size());
    const int grain = problem_.job.train.grain.value_or(1);
    const int batch = problem_.job.train.global_batch;
    const int grains = (batch + grain - 1) / grain;
    const int missing = grains * grain - batch;
    // best[mask][g][s]: of g grains on some of the devices of `mask`, s: one of them is short.
    std::vector<std::vector<std::array<double, 2>>> best(
        size_t{1} << devices,
        std::vector<std::array<double, 2>>(static_cast<size_t>(grains) + 1, {kNever, kNever}));
    for (size_t mask = 0; mask < best.size(); ++mask) best[mask][0][0] = 0;
    for (size_t mask = 1; mask < best.size(); ++mask)
      for (size_t set = mask; set > 0; set = (set - 1) & mask)
        for (int own = 1; own <= grains; ++own)
          for (const bool shorted : {false, true}) {
            if (shorted && missing == 0) continue;
            const double seconds = alone(set, own * grain - (shorted ? missing : 0));
            for (int others = 0; own + others <= grains; ++others)
              for (const int before : {0, 1}) {
                if (shorted && before == 1) continue;
                double& found =
                    best[mask][static_cast<size_t>(own + others)][before + (shorted ? 1 : 0)];
                found =
                    std::min(found, std::max(seconds, best[mask ^ set][static_cast<size_t>(others)]
                                                          [static_cast<size_t>(before)]));
              }
          }
    return best.back()[static_cast<size_t>(grains)][missing > 0 ? 1 : 0];
  }

 private:
  /// Those that are searched, but larger than a step.
  std::vector<int> sizes() const {
    const int grain = problem_.job.train.grain.value_or(1);
    const int batch = problem_.job.train.global_batch;
    return {1, 2, 3, 4, 6, (batch + grain - 1) / grain * grain};
  }

  double alone(size_t set, int samples) {
    const auto [known, is_new] = alone_.try_emplace({set, samples}, kNever);
    if (!is_new) return known->second;
    std::vector<int> order;
    for (int device = 0; (size_t{1} << device) <= set; ++device)
      if (set >> device & 1) order.push_back(device);
    const int grain = problem_.job.train.grain.value_or(1);
    std::set<std::vector<std::string>> tried;  // devices of a type are alike
    do {
      std::vector<std::string> types;
      for (const int device : order)
        types.push_back(problem_.fleet.devices[static_cast<size_t>(device)].type);
      if (!tried.insert(types).second) continue;
      for (const int size : sizes())
        if (size % grain == 0) try_cuts(order, size, samples, {}, 0, &known->second);
    } while (std::next_permutation(order.begin(), order.end()));
    return known->second;
  }

  void try_cuts(const std::vector<int>& order, int size, int samples, std::vector<int> ends,
                int first, double* best) {
    const int layers = layer_count(problem_.job.model);
    if (ends.size() == order.size()) {
      if (first == layers) *best = std::min(*best, price(order, size, samples, ends));
      return;
    }
    for (int last = first; last < layers; ++last) {
      ends.push_back(last);
      try_cuts(order, size, samples, ends, last + 1, best);
      ends.pop_back();
    }
  }

  double price(const std::vector<int>& order, int size, int samples, const std::vector<int>& ends) {
    const int grain = problem_.job.train.grain.value_or(1);
    Plan plan;
    plan.global_batch = samples;
    plan.grain = grain;
    ReplicaPlan& replica = plan.replicas.emplace_back();
    replica.micro_batch = size;
    replica.grains = (samples + grain - 1) / grain;
    for (size_t s = 0; s < order.size(); ++s) {
      const DeviceSpec& device = problem_.fleet.devices[static_cast<size_t>(order[s])];
      plan.ranks.push_back({device.id, device.host, device.type});
      StagePlan stage;
      stage.first_layer = s == 0 ? 0 : ends[s - 1] + 1;
      stage.last_layer = ends[s];
      stage.ranks = {Rank(static_cast<int>(s))};
      stage.shares = {1.0};
      replica.stages.push_back(stage);
    }
    const auto memory = *counted_plan(plan, problem_.job.model);
    for (size_t s = 0; s < order.size(); ++s)
      if (memory[s].total >
          usable_memory(problem_.profile.devices[static_cast<size_t>(order[s])], kMemoryHeadroom))
        return kNever;
    plan.owners = even_ownership(plan, problem_.job.model);
    EXPECT_TRUE(predict(problem_.request(), &plan));
    return plan.prediction.step_seconds - plan.prediction.communication_seconds;
  }

  const PlanningCase& problem_;
  std::map<std::pair<size_t, int>, double> alone_;
};

TEST(PipelineSearch, FindsTheBestOfAllPipelines) {
  std::mt19937 random(20261123);
  int found = 0, none = 0, cut = 0, several = 0;
  for (int i = 0; i < 200; ++i) {
    const PlanningCase problem = random_cut_case(random, i % 8 == 0 ? 4 : 3, 4);
    const double best = EveryPipeline(problem).run();
    const Result<Plan> plan = search_pipelines(problem.request(), counter_for(problem));
    SCOPED_TRACE("case " + std::to_string(i));
    if (!plan) {
      EXPECT_EQ(plan.error().code, ErrorCode::kNoPlan) << plan.error().message;
      EXPECT_EQ(best, kNever) << plan.error().message;
      ++none;
      continue;
    }
    ++found;
    const double seconds = plan->prediction.step_seconds - plan->prediction.communication_seconds;
    EXPECT_NEAR(seconds / best, 1, 1e-9);
    EXPECT_LE(plan->search.lower_bound_step_seconds, best * (1 + 1e-9));
    EXPECT_NEAR(plan->search.gap, 0, 1e-5) << "proved, since all was tried";
    EXPECT_TRUE(validate(*plan, problem.job.model));
    if (plan->replicas[0].stages.size() > 1) ++cut;
    if (plan->replicas.size() > 1) ++several;
  }
  EXPECT_GT(found, 120);
  EXPECT_GT(none, 5);
  EXPECT_GT(cut, 40);
  EXPECT_GT(several, 30);
}

/// `copies` hosts with two quick devices and a slow one each, of which none holds the model.
PlanningCase many_devices(int copies) {
  std::mt19937 random(1);
  PlanningCase problem(16 * copies);
  problem.job.model = {"gpt", 12, 2, 8, 16, 32};
  std::vector<DeviceProfile> types{random_type(random), random_type(random)};
  for (int host = 0; host < copies; ++host)
    for (const size_t type : {size_t{0}, size_t{0}, size_t{1}}) {
      problem.add({.host = "host" + std::to_string(host), .type = "card" + std::to_string(type)});
      DeviceProfile& device = problem.profile.devices.back();
      device.curves = types[type].curves;
      device.memory.clear();
      device.update_seconds = 0.001;
      device.memory_limit = Bytes((type == 0 ? 24 : 16) * kMiB);
    }
  return problem;
}

TEST(PipelineSearch, PacksManyDevices) {
  for (const int copies : {4, 24, 64}) {
    const PlanningCase problem = many_devices(copies);
    const Result<Plan> plan = search_pipelines(problem.request(), counter_for(problem));
    ASSERT_TRUE(plan) << plan.error().message;
    EXPECT_TRUE(validate(*plan, problem.job.model));
    EXPECT_GE(plan->search.gap, -1e-9);
    const MemoryCounter counter = counter_for(problem);
    const Result<Plan> equal = plan_equal_split(problem.request(), counter.plan);
    ASSERT_TRUE(equal) << equal.error().message;
    EXPECT_LT(plan->prediction.step_seconds, 0.85 * equal->prediction.step_seconds);
    EXPECT_EQ(plan->ranks.size() + plan->left_out.size(), problem.fleet.devices.size());
  }
}

TEST(PipelineSearch, SaysThatNothingFits) {
  PlanningCase problem = many_devices(2);
  for (DeviceProfile& device : problem.profile.devices) device.memory_limit = Bytes(4 * kMiB);
  const Result<Plan> plan = search_pipelines(problem.request(), counter_for(problem));
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, ErrorCode::kNoPlan);
  EXPECT_THAT(plan.error().message, HasSubstr("no pipeline over any of the 6 devices holds"));
}

/// Ranks need half a MiB more for each layer than their layers by themselves.
TEST(PipelineSearch, LearnsWhatRanksNeedBesides) {
  PlanningCase problem = many_devices(2);
  int asked = 0;
  const CountMemory more = [&](const Plan& plan) -> Result<std::vector<RankMemory>> {
    ++asked;
    auto memory = *counted_plan(plan, problem.job.model);
    for (const ReplicaPlan& replica : plan.replicas)
      for (const StagePlan& stage : replica.stages)
        memory[static_cast<size_t>(stage.ranks.front().value())].total +=
            Bytes(stage.layers() * kMiB / 2);
    return memory;
  };
  const Result<Plan> plan = search_pipelines(problem.request(), {more, counted_layers});
  ASSERT_TRUE(plan) << plan.error().message;
  for (const RankPrediction& rank : plan->prediction.ranks)
    EXPECT_LE(rank.memory, Bytes(rank.memory_limit.value() * 19 / 20));
  EXPECT_LT(asked, 8);
}

TEST(PipelineSearch, KeepsToTheNumberOfDevicesAsked) {
  PlanningCase problem = many_devices(3);
  problem.job.devices.count = CountRange{1, 4};
  const Result<Plan> plan = search_pipelines(problem.request(), counter_for(problem));
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_LE(plan->world_size(), 4);
}

/// Devices that hold the model twice over: cutting it brings nothing.
TEST(SearchForms, CutsOnlyWhereThatIsQuicker) {
  PlanningCase problem = many_devices(1);
  for (DeviceProfile& device : problem.profile.devices) {
    LayerCurve whole = layer_curve("model", 0, 0.05);
    device.curves.push_back(whole);
    device.memory_limit = Bytes(400 * kMiB);
    for (int size = 1; size <= 4; ++size)
      device.memory.push_back({size, Bytes(30 * kMiB), Bytes(size * kMiB)});
  }
  const MemoryCounter counter = counter_for(problem);
  const Result<Plan> plain = search_all_forms(problem.request(), counter);
  ASSERT_TRUE(plain) << plain.error().message;
  for (const ReplicaPlan& replica : plain->replicas) EXPECT_EQ(replica.stages.size(), 1u);

  // Two of them no longer do: together they do.
  for (const size_t small : {1, 2}) {
    problem.profile.devices[small].memory_limit = Bytes(24 * kMiB);
    problem.profile.devices[small].memory.clear();
  }
  const Result<Plan> cut = search_all_forms(problem.request(), counter);
  ASSERT_TRUE(cut) << cut.error().message;
  EXPECT_EQ(cut->world_size(), 3);
  EXPECT_THAT(cut->search.rejected.at(0).what, HasSubstr("data parallel over 1 whole device"));
}

/// The layers of both devices add up to what whole replicas take: nothing is even counted.
TEST(SearchForms, LooksForNoPipelineWhereNoneCanBeQuicker) {
  PlanningCase problem(16);
  problem.job.model = {"gpt", 2, 2, 8, 16, 32};
  for (int i = 0; i < 2; ++i) {
    problem.add({.per_sample = 0.04});
    DeviceProfile& device = problem.profile.devices.back();
    device.curves = {layer_curve("embedding", 0, 0.002), layer_curve("block", 0, 0.016),
                     layer_curve("head", 0, 0.006), layer_curve("model", 0, 0.04)};
  }
  int counted = 0;
  const MemoryCounter counter{[&](const Plan& plan) {
                                ++counted;
                                return counted_plan(plan, problem.job.model);
                              },
                              [&](const LayersToCount& layers) {
                                ++counted;
                                return counted_layers(layers);
                              }};
  const Result<Plan> plan = search_all_forms(problem.request(), counter);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->replicas.size(), 2u);
  EXPECT_EQ(counted, 0);
  EXPECT_THAT(plan->search.rejected.back().why, HasSubstr("none could be clearly quicker"));
}

}  // namespace
}  // namespace motley
