// The search for pipelines against every pipeline there is, on cases small enough to try all.

#include "planner/pipelines/pipeline_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "core/pipeline.h"
#include "planner/costs/cost_model.h"
#include "planner/pipelines/pipeline_space.h"
#include "planner/pipelines/placement.h"
#include "planner/pipelines/set_times.h"
#include "planner/plain/grain_table.h"
#include "planner/search_forms.h"
#include "tests/support/cut_fleets.h"
#include "tests/support/layered_case.h"
#include "tests/support/planning_case.h"
#include "tests/support/random_cases.h"

namespace motley {
namespace {

using ::testing::ElementsAre;
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
  type.memory_limit = Bytes(kMiB * draw(random, 4, 36));
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
      if (stages == 1)
        sum = sum - testing::tied_bytes(model, memory_of("block", 1).fixed, model.heads);
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

  /// Seconds of the best step; infinite where nothing fits. Of replicas and of stages in each as
  /// many as the job wants.
  double run() {
    const auto devices = static_cast<int>(problem_.fleet.devices.size());
    const ParallelSpec& wanted = problem_.job.parallel;
    std::vector<Row> rows{Row(size_t{1} << devices, Dealt(grains() + 1, {kNever, kNever}))};
    for (Dealt& none : rows[0]) none[0][0] = 0;
    double best = kNever;
    for (int replicas = 1; replicas <= devices; ++replicas) {
      rows.push_back(one_more(rows.back()));
      if (wanted.data && *wanted.data != replicas) continue;
      best = std::min(best, rows.back().back()[grains()][missing() > 0 ? 1 : 0]);
    }
    return best;
  }

 private:
  /// Of so many grains on some of a set of devices, without and with the short one among them.
  using Dealt = std::vector<std::array<double, 2>>;
  using Row = std::vector<Dealt>;  ///< by set of devices

  int grain() const { return problem_.job.train.grain.value_or(1); }
  size_t grains() const {
    return static_cast<size_t>((problem_.job.train.global_batch + grain() - 1) / grain());
  }
  int missing() const {
    return static_cast<int>(grains()) * grain() - problem_.job.train.global_batch;
  }
  bool is_wanted(size_t set) const {
    const std::optional<int>& stages = problem_.job.parallel.pipeline;
    return !stages || std::popcount(set) == *stages;
  }

  Row one_more(const Row& before) {
    Row row(before.size(), Dealt(grains() + 1, {kNever, kNever}));
    for (size_t mask = 1; mask < row.size(); ++mask)
      for (size_t set = mask; set > 0; set = (set - 1) & mask)
        for (size_t own = 1; is_wanted(set) && own <= grains(); ++own)
          for (const bool shorted : {false, true}) {
            if (shorted && missing() == 0) continue;
            const double seconds =
                alone(set, static_cast<int>(own) * grain() - (shorted ? missing() : 0));
            for (size_t others = 0; own + others <= grains(); ++others)
              for (const size_t has : {size_t{0}, size_t{1}}) {
                if (shorted && has == 1) continue;
                double& found = row[mask][own + others][has + (shorted ? 1 : 0)];
                found = std::min(found, std::max(seconds, before[mask ^ set][others][has]));
              }
          }
    return row;
  }

  /// Those that are searched, but larger than a step.
  std::vector<int> sizes() const {
    const int grain = problem_.job.train.grain.value_or(1);
    const int batch = problem_.job.train.global_batch;
    return {1, 2, 3, 4, 6, (batch + grain - 1) / grain * grain};
  }

  /// What tells devices apart: those of a type and a host are alike.
  std::vector<std::string> kinds_of(const std::vector<int>& devices) const {
    std::vector<std::string> kinds;
    for (const int device : devices) {
      const DeviceSpec& spec = problem_.fleet.devices[static_cast<size_t>(device)];
      kinds.push_back(spec.type + " on " + spec.host);
    }
    return kinds;
  }

  double alone(size_t set, int samples) {
    std::vector<int> order;
    for (int device = 0; (size_t{1} << device) <= set; ++device)
      if (set >> device & 1) order.push_back(device);
    std::vector<std::string> kinds = kinds_of(order);
    std::sort(kinds.begin(), kinds.end());
    const auto [known, is_new] = alone_.try_emplace({kinds, samples}, kNever);
    if (!is_new) return known->second;
    const int grain = problem_.job.train.grain.value_or(1);
    std::set<std::vector<std::string>> tried;
    do {
      if (!tried.insert(kinds_of(order)).second) continue;
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
  std::map<std::pair<std::vector<std::string>, int>, double> alone_;
};

/// Puts some of its devices on another host. Activations take their time over links; sums of
/// gradients, which EveryPipeline leaves out, were measured to take none.
void add_links(std::mt19937& random, PlanningCase* problem) {
  for (DeviceSpec& device : problem->fleet.devices)
    if (draw(random, 0, 2) == 0) device.host = "other";
  const std::vector<std::vector<std::string>> links = {
      {"localhost"}, {"other"}, {"localhost", "other"}};
  for (const std::vector<std::string>& hosts : links) {
    problem->add_link(hosts.front(), hosts.back(), 0.0001 * draw(random, 0, 20),
                      1e5 * draw(random, 1, 200));
    for (int ranks = 2; ranks <= 6; ++ranks) problem->add_reduction(ranks, 0, hosts);
  }
}

TEST(PipelineSearch, FindsTheBestOfAllPipelines) {
  constexpr int kEveryFew = 8;
  std::mt19937 random(20261123);
  int found = 0, none = 0, cut = 0, several = 0;
  for (int i = 0; i < 200; ++i) {
    const bool large = i % kEveryFew == 0;
    PlanningCase problem = random_cut_case(random, large ? 6 : 3, large ? 6 : 4);
    if (i % 2 == 0) add_links(random, &problem);
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
    EXPECT_NEAR(plan->search.gap(), 0, 1e-5) << "proved, since all was tried";
    EXPECT_TRUE(validate(*plan, problem.job.model));
    if (plan->replicas[0].stages.size() > 1) ++cut;
    if (plan->replicas.size() > 1) ++several;
  }
  EXPECT_GT(found, 120);
  EXPECT_GT(none, 5);
  EXPECT_GT(cut, 40);
  EXPECT_GT(several, 30);
}

TEST(PipelineSearch, KeepsToTheReplicasAndStagesThatTheJobWants) {
  std::mt19937 random(20261124);
  int found = 0, none = 0;
  for (int i = 0; i < 120; ++i) {
    PlanningCase problem = random_cut_case(random, 4, 3);
    const auto devices = static_cast<int>(problem.fleet.devices.size());
    if (i % 3 != 1) problem.job.parallel.data = draw(random, 1, devices);
    if (i % 3 != 0) problem.job.parallel.pipeline = draw(random, 1, 3);
    const ParallelSpec& wanted = problem.job.parallel;
    const double best = EveryPipeline(problem).run();
    const Result<Plan> plan = search_pipelines(problem.request(), counter_for(problem));
    SCOPED_TRACE("case " + std::to_string(i));
    ASSERT_EQ(plan.has_value(), best < kNever);
    if (!plan) {
      EXPECT_EQ(plan.error().code, ErrorCode::kNoPlan);
      EXPECT_THAT(plan.error().message, HasSubstr("(parallel."));
      ++none;
      continue;
    }
    ++found;
    const double seconds = plan->prediction.step_seconds - plan->prediction.communication_seconds;
    EXPECT_NEAR(seconds / best, 1, 1e-9);
    EXPECT_NEAR(plan->search.gap(), 0, 1e-5);
    const auto replicas = static_cast<int>(plan->replicas.size());
    EXPECT_EQ(replicas, wanted.data.value_or(replicas));
    for (const ReplicaPlan& replica : plan->replicas) {
      const auto stages = static_cast<int>(replica.stages.size());
      EXPECT_EQ(stages, wanted.pipeline.value_or(stages));
    }
  }
  EXPECT_GT(found, 40);
  EXPECT_GT(none, 20);
}

/// The quickest of a set over all its orders, each cut by a search of its own.
double quickest_of_orders(const PipelineCosts& costs, const GroupCounts& set,
                          const std::vector<int>& sizes, int samples) {
  std::vector<int> order;
  for (size_t group = 0; group < set.size(); ++group)
    order.insert(order.end(), static_cast<size_t>(set[group]), static_cast<int>(group));
  double best = kNever;
  for (const int size : sizes)
    for (bool more = true; more; more = std::next_permutation(order.begin(), order.end())) {
      StageCosts known(costs, size, samples);
      best = std::min(best, best_cut(&known, order, kNever, 1'000'000).seconds);
    }
  return best;
}

TEST(SetTimes, AreBoundsAndFindTheQuickest) {
  std::mt19937 random(20261124);
  int cut = 0;
  for (int i = 0; i < 200; ++i) {
    PlanningCase problem = random_cut_case(random, 6, 6);
    if (i % 2 == 0) problem.add_link("localhost", "localhost", 1e-5 * draw(random, 0, 50), 1e6);
    const PlanRequest request = problem.request();
    const auto groups = *group_devices(request, GroupBy::kType);
    const std::vector<int> sizes{1, 2, 3, 4};
    const auto costs = *PipelineCosts::make(request, groups, sizes, counted_layers);
    GroupCounts there;
    for (const DeviceGroup& group : groups) there.push_back(group.count());
    SetTimes times(costs, sets_of(there, 8), sizes, false);
    for (size_t set = 0; set < times.count(); ++set) {
      const int samples = draw(random, 1, 12);
      const GroupCounts& devices = times.devices(set);
      if (std::accumulate(devices.begin(), devices.end(), 0) > costs.layers()) continue;
      const double best = quickest_of_orders(costs, devices, sizes, samples);
      SCOPED_TRACE("case " + std::to_string(i) + ", set " + std::to_string(set));
      EXPECT_LE(times.seconds(set, samples), best);
      if (std::accumulate(devices.begin(), devices.end(), 0) == 1) continue;
      const auto found = times.prove(set, samples, 1'000'000);
      EXPECT_EQ(found.has_value(), best < kNever);
      EXPECT_EQ(times.seconds(set, samples), best);
      if (!found) continue;
      EXPECT_NEAR(costs.seconds(*found, samples), best, 1e-12);
      ++cut;
    }
  }
  EXPECT_GT(cut, 500);
}

enum class Passes { kRise, kAreFlat, kFall };

/// Seven unlike devices of a host: so many sets that not all numbers of samples are cut. Their
/// passes may hardly depend on samples, or take less for eight than for four, as where a kernel for
/// larger sizes is better.
PlanningCase seven_unlike(Passes passes, std::mt19937& random) {
  PlanningCase problem(32);
  problem.job.model = {"gpt", 7, 2, 8, 16, 32};
  for (int i = 0; i < 7; ++i) {
    problem.add({.host = "localhost", .type = "card" + std::to_string(i)});
    DeviceProfile& device = problem.profile.devices.back();
    device.curves = random_type(random).curves;
    for (LayerCurve& curve : device.curves) {
      if (passes == Passes::kAreFlat)
        curve = layer_curve(curve.layer, 0.001 * draw(random, 2, 10), 1e-5);
      if (passes != Passes::kFall) continue;
      curve.points[2].seconds = 1.5 * curve.points[3].seconds;
      curve.points[2].forward_seconds = curve.points[2].seconds / 3;
      curve.fit = fit_curve(curve.points);
    }
    device.memory.clear();
    device.update_seconds = 0.001 * draw(random, 0, 5);
    device.memory_limit = Bytes(draw(random, passes == Passes::kAreFlat ? 40 : 8, 60) * kMiB);
  }
  problem.add_link("localhost", "localhost", 1e-5 * draw(random, 0, 50),
                   std::pow(10, draw(random, 4, 6)));
  return problem;
}

TEST(SetTimes, OfManySetsAreBoundsToo) {
  std::mt19937 random(20261129);
  int cut = 0;
  double part = 0;  // of the quickest, in sum
  for (int i = 0; i < testing::random_cases(24); ++i) {
    const auto passes = static_cast<Passes>(i % 3);
    const PlanningCase problem = seven_unlike(passes, random);
    const PlanRequest request = problem.request();
    const auto groups = *group_devices(request, GroupBy::kType);
    const bool fall = passes == Passes::kFall;
    const int grain = fall ? 4 : 1;
    const std::vector<int> sizes = fall ? std::vector<int>{4, 8} : std::vector<int>{1, 2, 3, 4, 8};
    const auto costs = *PipelineCosts::make(request, groups, sizes, counted_layers);
    const auto sets = sets_of(GroupCounts(groups.size(), 1), 8);
    SetTimes times(costs, sets, sizes, true);
    ASSERT_TRUE(times.are_many());
    for (size_t set = 0; set < times.count(); ++set) {
      if (times.stages(set) > 4 || draw(random, 0, 3) > 0) continue;
      // Of flat passes a few samples in one micro-batch are quickest.
      const int most = passes == Passes::kAreFlat ? 8 : 32 / grain;
      const int samples = grain * draw(random, 1, most);
      SCOPED_TRACE("case " + std::to_string(i) + ", set " + std::to_string(set));
      const double best = quickest_of_orders(costs, times.devices(set), sizes, samples);
      const double bound = times.seconds(set, samples);
      EXPECT_LE(bound, best * (1 + 1e-9));
      EXPECT_LE(times.seconds_at_least(set, samples), bound * (1 + 1e-9));
      SetTimes below(costs, sets, sizes, true, 0.9 * bound);
      EXPECT_LE(below.seconds(set, samples), best * (1 + 1e-9));
      EXPECT_GE(below.seconds(set, samples), 0.9 * bound);
      if (best == kNever) continue;
      const GrainLimit limit{best, grain, 0, 64};
      SetTimes asked(costs, sets, sizes, true);  // for the first time
      EXPECT_GE(asked.grains_within(set, limit), samples / grain);
      EXPECT_GE(asked.grains_at_most(set, limit), asked.grains_within(set, limit));
      ++cut;
      part += bound / best;
    }
  }
  EXPECT_GT(cut, testing::random_cases(100));
  EXPECT_GT(part, 0.5 * cut) << "near, but for ways that stages wait for";
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
    EXPECT_GE(plan->search.gap(), -1e-9);
    const MemoryCounter counter = counter_for(problem);
    const Result<Plan> equal = plan_equal_split(problem.request(), counter.plan);
    ASSERT_TRUE(equal) << equal.error().message;
    EXPECT_LT(plan->prediction.step_seconds, 0.85 * equal->prediction.step_seconds);
    EXPECT_EQ(plan->ranks.size() + plan->left_out.size(), problem.fleet.devices.size());
  }
}

/// Wherever in the pipeline the slow device comes: of one of the two fleets it is far from the
/// quick one of its host.
TEST(PipelineSearch, RanksOfAHostFollowEachOther) {
  for (const bool mixed_first : {true, false}) {
    std::mt19937 random(1);
    PlanningCase problem(16);
    problem.job.model = {"gpt", 12, 2, 8, 16, 32};
    const std::vector<DeviceProfile> types{random_type(random), random_type(random)};
    const std::string mixed = mixed_first ? "host0" : "host2";
    for (const std::string host : {"host0", "host1", "host2"})
      for (size_t type = 0; type < (host == mixed ? 2u : 1u); ++type) {
        problem.add({.host = host, .type = "card" + std::to_string(type)});
        DeviceProfile& device = problem.profile.devices.back();
        device.curves = types[type].curves;
        device.memory.clear();
        device.memory_limit = Bytes((type == 0 ? 20 : 14) * kMiB);
      }
    const Result<Plan> plan = search_pipelines(problem.request(), counter_for(problem));
    ASSERT_TRUE(plan) << plan.error().message;
    EXPECT_EQ(plan->ranks.size(), 4u);
    std::vector<std::string> hosts;
    for (const RankPlacement& rank : plan->ranks)
      if (hosts.empty() || hosts.back() != rank.host) hosts.push_back(rank.host);
    EXPECT_EQ(std::set<std::string>(hosts.begin(), hosts.end()).size(), hosts.size());
  }
}

/// Where only all of them hold the model, over a link that is slow: embedding and head share
/// weights.
TEST(PipelineSearch, BothEndsOfAReplicaAreOnOneHost) {
  PlanningCase problem(16);
  problem.job.model = testing::kSmallGpt2;
  problem.job.parallel.tensor = 1;
  for (int device = 0; device < 4; ++device)
    testing::add_layered({.host = device < 2 ? "fast" : "slow",
                          .type = device < 2 ? "fast" : "slow",
                          .per_sample = device < 2 ? 0.001 : 0.002,
                          .memory_mib = 1200},
                         &problem);
  problem.add_link("fast", "fast", 1e-5, 1e10)
      .add_link("slow", "slow", 1e-5, 1e10)
      .add_link("fast", "slow", 1e-5, 1e8);
  const auto plan = search_pipelines(problem.request(), testing::layer_bytes_counter(problem));
  ASSERT_TRUE(plan) << plan.error().message;
  ASSERT_EQ(plan->replicas.size(), 1U);
  const std::vector<StagePlan>& stages = plan->replicas[0].stages;
  const auto host = [&](const StagePlan& stage) {
    return plan->ranks[static_cast<size_t>(stage.ranks[0].value())].host;
  };
  ASSERT_EQ(stages.size(), 4U);
  EXPECT_EQ(host(stages.front()), host(stages.back()));
}

/// Among its sets are many that cannot hold the model.
TEST(PipelineSearch, PacksAThousandDevices) {
  for (const testing::CutFleet& fleet : testing::large_cut_fleets()) {
    const PlanningCase problem = fleet.make();
    const Result<Plan> plan =
        search_pipelines(problem.request(), testing::layer_bytes_counter(problem));
    ASSERT_TRUE(plan) << fleet.name << ": " << plan.error().message;
    EXPECT_TRUE(validate(*plan, problem.job.model));
    EXPECT_GE(plan->search.gap(), 0);
    EXPECT_LE(plan->search.gap(), 0.1) << fleet.name;
  }
}

TEST(Placement, TakesDevicesOfOneHostWhereOneHasRoom) {
  PlanningCase problem(4);
  for (const auto& [host, type] : {std::pair("one", "a"), std::pair("one", "a"),
                                   std::pair("other", "a"), std::pair("other", "b")})
    problem.add({.host = host, .type = type});
  const auto groups = *group_devices(problem.request(), GroupBy::kType);
  const Pipeline both{{{0, 0, 0}, {1, 1, 1}}, 1}, single{{{0, 0, 1}}, 1};
  const auto costs = *PipelineCosts::make(problem.request(), groups, {1}, nullptr);
  const auto placed = place_on_hosts(groups, costs, {&single, &both});
  EXPECT_EQ(placed[1][0].front()->id, problem.fleet.devices[2].id);
  EXPECT_EQ(placed[1][1].front()->id, problem.fleet.devices[3].id);
  EXPECT_EQ(placed[0][0].front()->id, problem.fleet.devices[0].id);
}

TEST(Placement, GoesOverHostsInALineOrInARing) {
  PlanningCase problem(4);
  for (const char* host : {"one", "one", "one", "one", "other", "other", "other", "other"})
    problem.add({.host = host});
  const auto groups = *group_devices(problem.request(), GroupBy::kType);
  const Pipeline pipeline{{{0, 0, 0}, {0, 1, 1}, {0, 2, 2}, {0, 3, 3}}, 1};
  const auto costs = *PipelineCosts::make(problem.request(), groups, {1}, nullptr);
  const auto hosts_of = [&](HostOrder order, const std::vector<const Pipeline*>& pipelines) {
    std::vector<std::vector<std::string>> hosts;
    for (const PlacedRow& row : place_over_hosts(groups, costs, pipelines, 2, order)) {
      hosts.emplace_back();
      for (const auto& stage : row.stages) hosts.back().push_back(stage.front()->host);
    }
    return hosts;
  };
  const std::vector<std::string> line{"one", "one", "other", "other"};
  const std::vector<std::string> ring{"one", "other", "other", "one"};
  EXPECT_THAT(hosts_of(HostOrder::kLine, {&pipeline, &pipeline}), ElementsAre(line, line));
  EXPECT_THAT(hosts_of(HostOrder::kRing, {&pipeline, &pipeline}), ElementsAre(ring, ring));
  // Where a host has more than the other it begins and ends; one stage is no ring.
  const Pipeline three{{{0, 0, 0}, {0, 1, 1}, {0, 2, 3}}, 1}, whole{{{0, 0, 3}}, 1};
  EXPECT_THAT(hosts_of(HostOrder::kRing, {&pipeline, &three, &whole}),
              ElementsAre(ring, ElementsAre("one", "other", "one"), ElementsAre("other")));
}

TEST(PipelineSearch, ManyDevicesMakeAsManyReplicasAsTheJobWants) {
  for (const int replicas : {3, 12, 24}) {
    PlanningCase problem = many_devices(24);
    problem.job.parallel.data = replicas;
    problem.job.parallel.pipeline = 3;
    const Result<Plan> plan = search_pipelines(problem.request(), counter_for(problem));
    ASSERT_TRUE(plan) << plan.error().message;
    EXPECT_TRUE(validate(*plan, problem.job.model));
    EXPECT_EQ(static_cast<int>(plan->replicas.size()), replicas);
    EXPECT_EQ(plan->world_size(), 3 * replicas);
    EXPECT_GE(plan->search.gap(), -1e-9);
  }
}

/// Sums within a host that were measured: whatever is copied of what is known of them lives on.
TEST(PipelineSearch, SumsThatWereMeasuredWithinAHostCount) {
  std::mt19937 random(20261126);
  for (int i = 0; i < 20; ++i) {
    PlanningCase problem = random_cut_case(random, 4, 3);
    const Result<Plan> free = search_pipelines(problem.request(), counter_for(problem));
    for (const int ranks : {2, 3, 4}) problem.add_reduction(ranks, 0.5, {"localhost"});
    const Result<Plan> plan = search_pipelines(problem.request(), counter_for(problem));
    ASSERT_EQ(plan.has_value(), free.has_value());
    if (!plan) continue;
    EXPECT_GE(plan->prediction.step_seconds, free->prediction.step_seconds * (1 - 1e-9));
    EXPECT_LE(plan->search.lower_bound_step_seconds, plan->prediction.step_seconds * (1 + 1e-9));
  }
}

/// A device with so little memory that nothing could be measured, beside two that hold the model
/// together, by stages or, having less memory, by shares.
TEST(PipelineSearch, DoesWithoutDevicesOfWhichNothingIsKnown) {
  for (const bool sharing : {false, true}) {
    PlanningCase problem(48);
    problem.job.model = testing::kSmallGpt2;
    add_layered({.type = "tiny", .memory_mib = 1, .sharing = sharing}, &problem);
    for (int i = 0; i < 2; ++i)
      add_layered({.per_sample = 0.001, .memory_mib = sharing ? 1600 : 2400, .sharing = sharing},
                  &problem);
    problem.add_link("localhost", "localhost", 1e-5, 8e9);
    problem.profile.devices[0].curves.clear();
    const Result<Plan> plan = search_pipelines(problem.request(), layer_bytes_counter(problem));
    ASSERT_TRUE(plan) << plan.error().message;
    EXPECT_EQ(plan->world_size(), 2);
    ASSERT_EQ(plan->left_out.size(), 1U);
    EXPECT_EQ(plan->left_out[0].device, problem.fleet.devices[0].id);
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

/// Two layers go into each of six quick cards and six slow ones, of which eleven hold the model.
TEST(PipelineSearch, CountsOnlyWhatIsOfInterest) {
  std::mt19937 random(20261130);
  int counted = 0;
  for (int i = 0; i < 40; ++i) {
    const PlanningCase problem = random_cut_case(random, 3, 4);
    MemoryCounter counter = counter_for(problem);
    counter.plan = [&, count = counter.plan](auto& plan) { return ++counted, count(plan); };
    PlanRequest request = problem.request();
    const Result<Plan> best = search_pipelines(request, counter);
    if (!best) continue;
    request.below = best->prediction.step_seconds * 2;
    EXPECT_EQ(search_pipelines(request, counter)->id, best->id);
    request.below /= 4;
    counted = 0;
    const Result<Plan> slow = search_pipelines(request, counter);
    EXPECT_TRUE(!slow || slow->prediction.step_seconds >= request.below);
    EXPECT_EQ(counted, 0);
  }
}

TEST(PipelineSearch, IsOfAsManyStagesAsHoldTheModel) {
  PlanningCase problem(24);
  problem.job.model = {"gpt", 20, 2, 80, 16, 32};
  for (int i = 0; i < 12; ++i) {
    problem.add({.type = i < 6 ? "quick" : "slow"});
    DeviceProfile& device = problem.profile.devices.back();
    const double seconds = i < 6 ? 0.01 : 0.03;
    device.curves = {layer_curve("embedding", 0, seconds / 5), layer_curve("block", 0, seconds),
                     layer_curve("head", 0, seconds / 2)};
    device.memory.clear();
    device.memory_limit = Bytes(5 * kMiB);
  }
  const CountLayers layers = [](const LayersToCount& asked) -> Result<LayerMemoryTable> {
    LayerMemoryTable table;
    for (const char* const layer : {"embedding", "block", "head"})
      for (const int size : asked.micro_batches) table[{layer, 2, size}].fixed = Bytes(2 * kMiB);
    return table;
  };
  const CountMemory ranks = [](const Plan& plan) -> Result<std::vector<RankMemory>> {
    std::vector<RankMemory> memory;
    for (const StagePlan& stage : plan.replicas.front().stages)
      memory.push_back({.total = Bytes(stage.layers() * 2 * kMiB)});
    return memory;
  };
  const Result<Plan> plan = search_pipelines(problem.request(), {ranks, layers});
  ASSERT_TRUE(plan) << plan.error().message;
  ASSERT_EQ(plan->replicas.size(), 1U);
  EXPECT_GE(plan->replicas.front().stages.size(), 11U);
  problem.job.parallel.pipeline = 13;
  EXPECT_FALSE(search_pipelines(problem.request(), {ranks, layers}));
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

/// Three devices that hold the model twice over, with as many samples each: cutting it brings
/// nothing.
TEST(SearchForms, CutsOnlyWhereThatIsQuicker) {
  PlanningCase problem = many_devices(1);
  problem.job.train.global_batch = 15;
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
  EXPECT_TRUE(std::any_of(cut->search.rejected.begin(), cut->search.rejected.end(),
                          [](const RejectedPlan& rejected) {
                            return rejected.what.starts_with("data parallel over 1 whole device");
                          }));
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
