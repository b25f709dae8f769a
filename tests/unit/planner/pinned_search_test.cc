// Plans with pinned replicas against every plan that has them, on cases small enough to try all.

#include "planner/pinned/pinned_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "planner/costs/cost_model.h"
#include "planner/plain/grain_table.h"
#include "planner/search_forms.h"
#include "tests/support/planning_case.h"

namespace motley {
namespace {

using ::testing::HasSubstr;
using testing::PlanningCase;

int draw(std::mt19937& random, int low, int high) {
  return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
}

/// A MiB each, of whatever there is.
MemoryCounter frugal_counter(const PlanningCase& problem) {
  return {
      [](const Plan& plan) -> Result<std::vector<RankMemory>> {
        return std::vector<RankMemory>(plan.ranks.size(), RankMemory{.total = Bytes(1 << 20)});
      },
      [whole = problem.job.model.heads](const LayersToCount& asked) -> Result<LayerMemoryTable> {
        LayerMemoryTable table;
        for (const char* const layer : {"embedding", "block", "head"})
          for (const int heads : asked.heads.empty() ? std::vector{whole} : asked.heads)
            for (const int size : asked.micro_batches)
              table[{layer, heads, size}] = {Bytes(1 << 10), Bytes(1 << 10), Bytes(1 << 10)};
        return table;
      }};
}

PinnedReplica whole_on(const PlanningCase& problem, size_t device) {
  PinnedStage stage;
  stage.last_layer = layer_count(problem.job.model) - 1;
  stage.devices = {problem.fleet.devices[device].id};
  return {.stages = {stage}, .micro_batch = {}, .grains = {}};
}

/// Unlike devices on one host, whose sums cost nothing; some of them pinned, in part.
PlanningCase random_pinned_case(std::mt19937& random) {
  PlanningCase problem(draw(random, 3, 12));
  const int devices = draw(random, 2, 4);
  for (int i = 0; i < devices; ++i)
    problem.add({.fixed = 0.001 * draw(random, 0, 30),
                 .per_sample = 0.001 * draw(random, 2, 20),
                 .update = 0.001 * draw(random, 0, 10),
                 .largest_micro_batch = draw(random, 2, 8)});
  const bool has_grain = draw(random, 0, 1) == 1;
  if (has_grain) problem.job.train.grain = draw(random, 1, 2);
  const int grain = problem.job.train.grain.value_or(1);
  const int pinned = draw(random, 1, std::min(2, problem.job.train.global_batch / grain));
  for (int i = 0; i < pinned; ++i) {
    PinnedReplica& pin =
        problem.job.pin.replicas.emplace_back(whole_on(problem, static_cast<size_t>(i)));
    if (draw(random, 0, 2) == 0) pin.micro_batch = grain * draw(random, 1, 2);
    if (has_grain && draw(random, 0, 2) == 0) pin.grains = draw(random, 1, 2);
  }
  if (draw(random, 0, 3) == 0) problem.job.parallel.data = draw(random, pinned, devices);
  return problem;
}

/// All deals of grains over the devices, those the pins allow.
class EveryDeal {
 public:
  explicit EveryDeal(const PlanningCase& problem)
      : problem_(problem),
        grain_(problem.job.train.grain.value_or(1)),
        grains_((problem.job.train.global_batch + grain_ - 1) / grain_) {}

  double run() {
    deal(0, grains_);
    return best_;
  }

 private:
  void deal(size_t device, int left) {
    if (device == problem_.fleet.devices.size()) {
      if (left == 0) price();
      return;
    }
    for (int grains = 0; grains <= left; ++grains) {
      dealt_.push_back(grains);
      deal(device + 1, left - grains);
      dealt_.pop_back();
    }
  }

  const PinnedReplica* pin_of(size_t device) const {
    for (const PinnedReplica& pin : problem_.job.pin.replicas)
      if (pin.stages[0].devices[0] == problem_.fleet.devices[device].id) return &pin;
    return nullptr;
  }

  bool is_allowed() const {
    int used = 0;
    for (size_t i = 0; i < dealt_.size(); ++i) {
      const PinnedReplica* pin = pin_of(i);
      if (pin != nullptr && dealt_[i] == 0) return false;
      if (pin != nullptr && pin->grains && dealt_[i] != *pin->grains) return false;
      if (dealt_[i] > 0) ++used;
    }
    return !problem_.job.parallel.data || used == *problem_.job.parallel.data;
  }

  /// Of a step's samples, the short grain on `taker`, those of what is not pinned.
  int samples_of_rest(size_t taker, int missing) const {
    int samples = 0;
    for (size_t i = 0; i < dealt_.size(); ++i)
      if (pin_of(i) == nullptr) samples += dealt_[i] * grain_ - (i == taker ? missing : 0);
    return samples;
  }

  /// The rest is planned as if it were alone: `of_rest` samples may be one micro-batch.
  double seconds(size_t device, int samples, int of_rest) const {
    const DeviceProfile& profile = problem_.profile.devices[device];
    const PinnedReplica* pin = pin_of(device);
    // One that has nothing but the short grain holds no more than that.
    const int at_once = pin == nullptr ? of_rest : problem_.job.train.global_batch;
    std::vector<int> sizes =
        micro_batch_sizes(profile, {.grain = std::min(grain_, samples), .global_batch = at_once});
    if (pin != nullptr && pin->micro_batch) sizes = {*pin->micro_batch};
    if (sizes.empty()) return kNever;
    return section_seconds(best_micro_batch(profile, samples, sizes).seconds,
                           profile.update_seconds);
  }

  void price() {
    if (!is_allowed()) return;
    const int missing = grains_ * grain_ - problem_.job.train.global_batch;
    for (size_t taker = 0; taker < dealt_.size(); ++taker) {
      if (dealt_[taker] == 0) continue;
      const int of_rest = samples_of_rest(taker, missing);
      double slowest = 0;
      for (size_t i = 0; i < dealt_.size(); ++i)
        if (dealt_[i] > 0)
          slowest = std::max(slowest,
                             seconds(i, dealt_[i] * grain_ - (i == taker ? missing : 0), of_rest));
      best_ = std::min(best_, slowest);
    }
  }

  const PlanningCase& problem_;
  int grain_, grains_;
  std::vector<int> dealt_;
  double best_ = kNever;
};

TEST(PinnedSearch, FindsTheBestOfAllDealsThatThePinsAllow) {
  std::mt19937 random(20261124);
  int found = 0, none = 0, alone = 0;
  for (int i = 0; i < 300; ++i) {
    const PlanningCase problem = random_pinned_case(random);
    const double best = EveryDeal(problem).run();
    const Result<Plan> plan = search_all_forms(problem.request(), frugal_counter(problem));
    SCOPED_TRACE("case " + std::to_string(i));
    ASSERT_EQ(plan.has_value(), best < kNever) << (plan ? "" : plan.error().message);
    if (!plan) {
      EXPECT_EQ(plan.error().code, ErrorCode::kNoPlan) << plan.error().message;
      ++none;
      continue;
    }
    ++found;
    EXPECT_NEAR(plan->prediction.step_seconds / best, 1, 1e-9);
    EXPECT_LE(plan->search.lower_bound_step_seconds, best * (1 + 1e-9));
    EXPECT_TRUE(validate(*plan, problem.job.model));
    EXPECT_EQ(plan->ranks.size() + plan->left_out.size(), problem.fleet.devices.size());
    if (plan->ranks.size() == problem.job.pin.replicas.size()) ++alone;
  }
  EXPECT_GT(found, 200);
  EXPECT_GT(none, 3);
  EXPECT_GT(alone, 10);
}

/// Four devices that were measured layer by layer, each twice as quick as the next.
PlanningCase four_layered() {
  PlanningCase problem(12);
  problem.job.model = {"gpt", 4, 2, 8, 16, 32};
  for (int i = 0; i < 4; ++i) {
    problem.add({.host = i < 2 ? "a" : "b", .type = "card" + std::to_string(i)});
    DeviceProfile& device = problem.profile.devices.back();
    device.curves.clear();
    device.memory.clear();  // nothing was measured of whole models
    for (const char* const layer : {"embedding", "block", "head"}) {
      LayerCurve curve;
      curve.layer = layer;
      for (const int size : {1, 2, 4, 8}) {
        const double seconds = 0.001 + 0.002 * size * (1 << i);
        curve.points.push_back({size, seconds, 0.01, 5, seconds / 3});
      }
      curve.fit = fit_curve(curve.points);
      device.curves.push_back(curve);
    }
    device.update_seconds = 0.003;
  }
  return problem;
}

PinnedReplica cut_over(const PlanningCase& problem, size_t first, size_t second, int last) {
  PinnedReplica pin = whole_on(problem, first);
  PinnedStage rest = whole_on(problem, second).stages[0];
  pin.stages[0].last_layer = last;
  rest.first_layer = last + 1;
  pin.stages.push_back(rest);
  return pin;
}

/// predict() of two pipelines that share a step.
double seconds_of_two(const PlanningCase& problem, const std::vector<PinnedReplica>& pins,
                      int grains, const std::vector<int>& sizes) {
  Plan plan;
  plan.global_batch = problem.job.train.global_batch;
  plan.grain = 1;
  for (size_t r = 0; r < pins.size(); ++r) {
    ReplicaPlan& replica = plan.replicas.emplace_back();
    for (const PinnedStage& stage : pins[r].stages) {
      const DeviceSpec& device = *problem.fleet.find(stage.devices[0]);
      replica.stages.push_back(
          {stage.first_layer, stage.last_layer, {Rank(plan.world_size())}, {1.0}});
      plan.ranks.push_back({device.id, device.host, device.type});
    }
    replica.micro_batch = sizes[r];
    replica.grains = r == 0 ? grains : problem.job.train.global_batch - grains;
  }
  plan.owners = even_ownership(plan, problem.job.model);
  EXPECT_TRUE(predict(problem.request(), &plan));
  return plan.prediction.step_seconds;
}

TEST(PinnedSearch, FindsGrainsAndMicroBatchesOfPinnedPipelines) {
  for (const int last : {1, 2, 3, 4}) {
    PlanningCase problem = four_layered();
    problem.job.pin.replicas = {cut_over(problem, 0, 2, last), cut_over(problem, 3, 1, last - 1)};
    double best = kNever;
    for (int grains = 1; grains < 12; ++grains)
      for (const int first : {1, 2, 3, 4, 6, 8, 12})
        for (const int second : {1, 2, 3, 4, 6, 8, 12})
          best = std::min(
              best, seconds_of_two(problem, problem.job.pin.replicas, grains, {first, second}));
    const auto plan = search_all_forms(problem.request(), frugal_counter(problem));
    ASSERT_TRUE(plan) << plan.error().message;
    EXPECT_LE(plan->prediction.step_seconds, best * (1 + 1e-9));
    EXPECT_NEAR(plan->prediction.step_seconds / best, 1, 1e-9);
    EXPECT_TRUE(validate(*plan, problem.job.model));
    EXPECT_GT(plan->search.lower_bound_step_seconds, 0);
    EXPECT_LE(plan->search.lower_bound_step_seconds, plan->prediction.step_seconds);
    ASSERT_EQ(plan->replicas.size(), 2);
    for (const ReplicaPlan& replica : plan->replicas) EXPECT_EQ(replica.stages.size(), 2);
  }
}

TEST(PinnedSearch, WhatIsPinnedWholeIsTheOnlyPlan) {
  PlanningCase problem = four_layered();
  problem.fleet.devices.resize(2);
  problem.job.pin.replicas = {cut_over(problem, 0, 1, 2)};
  problem.job.pin.replicas[0].micro_batch = 1;
  const auto plan = search_all_forms(problem.request(), frugal_counter(problem));
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->search.gap(), 0);
}

TEST(PinnedSearch, KeepsWhatIsPinnedAndPlansTheRest) {
  PlanningCase problem = four_layered();
  problem.job.pin.replicas = {cut_over(problem, 1, 3, 2)};
  problem.job.pin.replicas[0].stages[1].recompute = {Recompute::kBlock};
  problem.job.pin.leave_out = {"b/0"};
  LayerCurve again = problem.profile.devices[3].curves[1];
  again.recompute = Recompute::kBlock;
  problem.profile.devices[3].curves.push_back(again);
  const auto plan = search_all_forms(problem.request(), frugal_counter(problem));
  ASSERT_TRUE(plan) << plan.error().message;
  ASSERT_EQ(plan->replicas.size(), 2);
  const ReplicaPlan& pinned = plan->replicas[0];
  ASSERT_EQ(pinned.stages.size(), 2);
  EXPECT_EQ(plan->ranks[static_cast<size_t>(pinned.stages[0].ranks[0].value())].device, "a/1");
  EXPECT_EQ(plan->ranks[static_cast<size_t>(pinned.stages[1].ranks[0].value())].device, "b/1");
  EXPECT_EQ(pinned.stages[1].first_layer, 3);
  const std::vector<Recompute> twice{Recompute::kBlock, Recompute::kBlock, Recompute::kNone};
  EXPECT_EQ(pinned.stages[1].recompute, twice) << "the head keeps nothing";
  ASSERT_EQ(plan->left_out.size(), 1);
  EXPECT_EQ(plan->left_out[0].device, "b/0");
  EXPECT_EQ(plan->left_out[0].why, "pin.leave_out");
  ASSERT_EQ(plan->search.rejected.size(), 1);
  EXPECT_EQ(plan->search.rejected[0].what, "the plan without pin.replicas");
  EXPECT_THAT(plan->search.space, HasSubstr("1 replica as pinned"));
  JobSpec unpinned = problem.job;
  unpinned.pin.replicas.clear();
  const auto other =
      search_all_forms({unpinned, problem.fleet, problem.profile}, frugal_counter(problem));
  EXPECT_EQ(plan->search.rejected[0].step_seconds, other->prediction.step_seconds);
}

TEST(PinnedSearch, DevicesMayShareAPinnedStage) {
  PlanningCase problem = four_layered();
  for (DeviceProfile& device : problem.profile.devices)
    for (LayerCurve curve : std::vector<LayerCurve>(device.curves)) {
      curve.share = 0.5;
      for (CurvePoint& point : curve.points) point.seconds *= 0.6, point.forward_seconds *= 0.6;
      curve.fit = fit_curve(curve.points);
      device.curves.push_back(curve);
    }
  PinnedReplica pin = whole_on(problem, 0);
  pin.stages[0].devices = {"a/0", "a/1"};
  problem.job.pin.replicas = {pin};
  problem.job.pin.leave_out = {"b/0", "b/1"};
  const auto plan = search_all_forms(problem.request(), frugal_counter(problem));
  ASSERT_TRUE(plan) << plan.error().message;
  ASSERT_EQ(plan->replicas.size(), 1);
  EXPECT_EQ(plan->replicas[0].stages[0].shares, (std::vector<double>{0.5, 0.5}));
  EXPECT_EQ(plan->search.lower_bound_step_seconds, 0) << "nothing is known of parts of layers";
}

TEST(PinnedSearch, PinnedReplicasDoWithSmallerMicroBatchesWhereMemoryIsShort) {
  PlanningCase problem = four_layered();
  problem.job.pin.replicas = {whole_on(problem, 0)};
  problem.job.pin.leave_out = {"a/1", "b/0", "b/1"};
  MemoryCounter counter = frugal_counter(problem);
  counter.plan = [](const Plan& plan) -> Result<std::vector<RankMemory>> {
    const int size = plan.replicas[0].micro_batch;
    return std::vector<RankMemory>{{.total = Bytes((size > 2 ? 100LL : 1LL) << 20)}};
  };
  const auto plan = search_all_forms(problem.request(), counter);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->replicas[0].micro_batch, 2);
  problem.job.pin.replicas[0].micro_batch = 4;
  const auto none = search_all_forms(problem.request(), counter);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::kNoPlan);
  EXPECT_THAT(none.error().message, HasSubstr("a/0 (card0) needs 100 MiB of"));
}

TEST(PinnedSearch, ADeviceThatIsNotThereIsNamed) {
  PlanningCase problem = four_layered();
  problem.job.pin.replicas = {whole_on(problem, 3)};
  problem.fleet.devices.pop_back();
  const auto plan = search_all_forms(problem.request(), frugal_counter(problem));
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, ErrorCode::kNoPlan);
  EXPECT_THAT(plan.error().message, HasSubstr("the job pins b/1, which is not among the devices"));
}

TEST(PinnedSearch, GrainsOfManyAreDealtByBisection) {
  PlanningCase problem(6000);
  for (int i = 0; i < 6; ++i) problem.add({.fixed = 0, .per_sample = 0.010});
  problem.job.pin.replicas = {whole_on(problem, 0), whole_on(problem, 1)};
  problem.job.train.grain = 1;
  const auto plan = search_all_forms(problem.request(), frugal_counter(problem));
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->world_size(), 6);
  EXPECT_LE(plan->prediction.step_seconds, 10.0 * 1.005);
}

}  // namespace
}  // namespace motley
