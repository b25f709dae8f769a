// What holds of the best plan of either form, whole replicas and pipelines, of up to four devices,
// of which every pipeline is looked at. Of more, designs are a choice, and it need not.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

#include "planner/costs/cost_model.h"
#include "planner/pipelines/pipeline_search.h"
#include "planner/search_forms.h"
#include "tests/support/layered_case.h"

namespace motley {
namespace {

using testing::add_layered;
using testing::layer_bytes_counter;
using testing::LayeredDevice;
using testing::PlanningCase;

constexpr int kMostDevices = 4;
/// Other forms are looked for where they could save that; packings are as near to the best.
constexpr double kWorthLooking = 0.02;
constexpr double kNearly = 1e-5;

LayeredDevice any_layered() {
  static const LayeredDevice kTypes[] = {
      {.type = "a", .per_sample = 0.004, .fixed = 0.0005, .update = 0.003, .memory_mib = 60},
      {.type = "b", .per_sample = 0.009, .fixed = 0.0002, .update = 0.004, .memory_mib = 24},
      {.type = "c", .per_sample = 0.021, .fixed = 0.0010, .update = 0.010, .memory_mib = 14},
      {.type = "d", .per_sample = 0.007, .fixed = 0.0001, .update = 0.002, .memory_mib = 11}};
  LayeredDevice device = *rc::gen::elementOf(std::vector(std::begin(kTypes), std::end(kTypes)));
  device.host = *rc::gen::element<std::string>("one", "other");
  return device;
}

/// Of a model of four small blocks; some devices hold it, most do not. Its state is not sharded:
/// not every cut is looked at for that (state_search_test.cc).
PlanningCase any_layered_case(int least, int most) {
  PlanningCase problem(*rc::gen::inRange(2, 6));
  problem.job.model = {"gpt", 4, 4, 128, 64, 256};
  problem.job.parallel.shard_optimizer = ShardOptimizer::kOff;
  for (int i = *rc::gen::inRange(least, most + 1); i > 0; --i) add_layered(any_layered(), &problem);
  if (*rc::gen::arbitrary<bool>()) {
    problem.add_link("one", "one", 1e-5, 4e9).add_link("other", "other", 1e-5, 4e9);
    problem.add_link("one", "other", 1e-4, 1e8 * *rc::gen::inRange(1, 20));
  }
  return problem;
}

Result<Plan> plan_of(const PlanningCase& problem) {
  return search_all_forms(problem.request(), layer_bytes_counter(problem));
}

constexpr double kNoStep = std::numeric_limits<double>::infinity();

double step_of(const PlanningCase& problem) {
  const Result<Plan> plan = plan_of(problem);
  return plan ? plan->prediction.step_seconds : kNoStep;
}

/// Pipelines alone: their sums of gradients apart, which the number of replicas is chosen by.
double section_of_pipelines(const PlanningCase& problem) {
  const Result<Plan> plan = search_pipelines(problem.request(), layer_bytes_counter(problem));
  if (!plan) return kNoStep;
  return plan->prediction.step_seconds - plan->prediction.communication_seconds;
}

void be_quicker(double factor, DeviceProfile* device) {
  device->step_overhead_seconds *= factor;
  device->update_seconds *= factor;
  for (LayerCurve& curve : device->curves) {
    for (CurvePoint& point : curve.points) {
      point.seconds *= factor;
      point.forward_seconds *= factor;
    }
    curve.fit.fixed *= factor;
    curve.fit.per_sample *= factor;
  }
}

RC_GTEST_PROP(FormProperties, AnotherDeviceNeverMakesItSlower, ()) {
  PlanningCase problem = any_layered_case(1, kMostDevices - 1);
  const double before = step_of(problem);
  LayeredDevice device = any_layered();
  device.host = problem.fleet.devices.back().host;
  add_layered(device, &problem);
  RC_ASSERT(step_of(problem) <= before * (1 + kWorthLooking));
}

RC_GTEST_PROP(FormProperties, AFasterDeviceNeverMakesItSlower, ()) {
  PlanningCase problem = any_layered_case(1, kMostDevices);
  const double before = step_of(problem);
  const size_t which = *rc::gen::inRange<size_t>(0, problem.profile.devices.size());
  be_quicker(0.01 * *rc::gen::inRange(10, 100), &problem.profile.devices[which]);
  RC_ASSERT(step_of(problem) <= before * (1 + kWorthLooking));
}

RC_GTEST_PROP(FormProperties, PipelinesOfMoreDevicesAreNoSlower, ()) {
  PlanningCase problem = any_layered_case(1, kMostDevices - 1);
  problem.profile.links.clear();
  const double before = section_of_pipelines(problem);
  add_layered(any_layered(), &problem);
  RC_ASSERT(section_of_pipelines(problem) <= before * (1 + kNearly));
}

RC_GTEST_PROP(FormProperties, PipelinesOfAFasterDeviceAreNoSlower, ()) {
  PlanningCase problem = any_layered_case(1, kMostDevices);
  problem.profile.links.clear();
  const double before = section_of_pipelines(problem);
  const size_t which = *rc::gen::inRange<size_t>(0, problem.profile.devices.size());
  be_quicker(0.01 * *rc::gen::inRange(10, 100), &problem.profile.devices[which]);
  RC_ASSERT(section_of_pipelines(problem) <= before * (1 + kNearly));
}

RC_GTEST_PROP(FormProperties, MoreMemoryNeverMakesItSlower, ()) {
  PlanningCase problem = any_layered_case(1, kMostDevices);
  const double before = step_of(problem);
  for (DeviceProfile& device : problem.profile.devices) device.memory_limit += Bytes(1 << 22);
  RC_ASSERT(step_of(problem) <= before * (1 + kWorthLooking));
}

RC_GTEST_PROP(FormProperties, TheOrderOfDevicesChangesNamesOnly, ()) {
  const PlanningCase problem = any_layered_case(2, kMostDevices);
  std::vector<size_t> order(problem.fleet.devices.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::mt19937 random(*rc::gen::arbitrary<uint32_t>());
  std::shuffle(order.begin(), order.end(), random);
  const double one = step_of(problem), other = step_of(problem.permuted(order));
  RC_ASSERT(one <= other * (1 + kNearly));
  RC_ASSERT(other <= one * (1 + kNearly));
}

/// Hosts exchange their names.
RC_GTEST_PROP(FormProperties, TheNamesOfHostsChangeNothing, ()) {
  const PlanningCase problem = any_layered_case(2, kMostDevices);
  PlanningCase renamed = problem;
  const auto other_name = [](const std::string& host) {
    return std::string(host == "one" ? "other" : "one");
  };
  for (DeviceSpec& device : renamed.fleet.devices) device.host = other_name(device.host);
  for (LinkProfile& link : renamed.profile.links)
    for (std::string& host : link.between) host = other_name(host);
  for (ReductionPoint& point : renamed.profile.reductions)
    for (std::string& host : point.hosts) host = other_name(host);
  const double one = step_of(problem), other = step_of(renamed);
  RC_ASSERT(one <= other * (1 + kNearly));
  RC_ASSERT(other <= one * (1 + kNearly));
}

/// Up to whole nanoseconds.
RC_GTEST_PROP(FormProperties, TwiceTheTimesIsTwiceTheStep, ()) {
  const PlanningCase problem = any_layered_case(1, kMostDevices);
  const double one = step_of(problem), two = step_of(problem.scaled(2));
  RC_ASSERT((one == kNoStep) == (two == kNoStep));
  if (one < kNoStep) RC_ASSERT(std::abs(two / (2 * one) - 1) < kNearly);
}

RC_GTEST_PROP(FormProperties, NoPlanIsQuickerThanItsBound, ()) {
  const PlanningCase problem = any_layered_case(1, kMostDevices);
  const auto plan = search_pipelines(problem.request(), layer_bytes_counter(problem));
  RC_PRE(plan.has_value());
  RC_ASSERT(plan->search.lower_bound_step_seconds <= plan->prediction.step_seconds * (1 + kNearly));
  RC_ASSERT(least_seconds_of_pipelines(problem.request())->step <=
            plan->search.lower_bound_step_seconds * (1 + kNearly));
}

/// On hosts of up to four cards, of which some hold a third of the model, linked well or badly.
PlanningCase any_linked_case(int most_hosts) {
  PlanningCase problem(*rc::gen::inRange(4, 24));
  problem.job.model = {"gpt", 4, 4, 128, 64, *rc::gen::element(256, 4096)};
  const int hosts = *rc::gen::inRange(1, most_hosts + 1);
  const auto name = [](int host) { return "host" + std::to_string(host); };
  const double within = 1e7 * *rc::gen::inRange(1, 400), across = 1e6 * *rc::gen::inRange(1, 400);
  const LayeredDevice types[] = {any_layered(), any_layered(), any_layered()};
  for (int host = 0; host < hosts; ++host) {
    for (int card = *rc::gen::inRange(1, 5); card > 0; --card) {
      LayeredDevice device = types[*rc::gen::inRange(0, 3)];
      device.host = name(host);
      device.sharing = true;
      add_layered(device, &problem);
    }
    for (int other = 0; other <= host; ++other)
      problem.add_link(name(other), name(host), 1e-5, other == host ? within : across);
  }
  return problem;
}

/// Plans of one shape or another are plans, and no bound on all of them is above one.
void expect_bound_on_all_shapes(PlanningCase problem) {
  const auto plan = search_pipelines(problem.request(), layer_bytes_counter(problem));
  RC_PRE(plan.has_value());
  const double bound = plan->search.lower_bound_step_seconds;
  RC_ASSERT(bound <= plan->prediction.step_seconds * (1 + kNearly));
  for (const int data : {1, 2, 3, 5, 8})
    for (const int tensor : {1, 2, 3, 0}) {
      problem.job.parallel.data = data;
      problem.job.parallel.tensor = tensor > 0 ? std::optional<int>(tensor) : std::nullopt;
      const auto other = search_pipelines(problem.request(), layer_bytes_counter(problem));
      if (other) RC_ASSERT(bound <= other->prediction.step_seconds * (1 + kNearly));
    }
}

RC_GTEST_PROP(FormProperties, NoShapeIsBelowTheBoundOfFewDevices, ()) {
  expect_bound_on_all_shapes(any_linked_case(2));
}

RC_GTEST_PROP(FormProperties, NoShapeIsBelowTheBoundOfManyDevices, ()) {
  expect_bound_on_all_shapes(any_linked_case(6));
}

/// Four cards make two replicas; with a fifth behind a slow link both could be quicker, were it not
/// for the sums.
TEST(FormProperties, ADeviceBehindASlowLinkIsLeftOut) {
  PlanningCase problem(32);
  problem.job.model = {"gpt", 4, 4, 128, 64, 256};
  const LayeredDevice card{
      .host = "one", .type = "a", .per_sample = 0.004, .fixed = 0.0001, .memory_mib = 11};
  for (int i = 0; i < 4; ++i) add_layered(card, &problem);
  problem.add_link("one", "one", 1e-5, 4e9).add_link("one", "other", 1e-4, 1e6);
  const Result<Plan> near = plan_of(problem);
  ASSERT_TRUE(near) << near.error().message;
  ASSERT_GT(near->replicas.size(), 1u);
  LayeredDevice far = card;
  far.host = "other";
  add_layered(far, &problem);
  const Result<Plan> with = plan_of(problem);
  ASSERT_TRUE(with) << with.error().message;
  EXPECT_LE(with->prediction.step_seconds, near->prediction.step_seconds * (1 + kNearly));
}

/// The same of two cards on one host and one each on two others, where state has to be shared.
TEST(FormProperties, HostsBehindSlowLinksAreLeftOutTogether) {
  PlanningCase problem(32);
  problem.job.model = {"gpt", 4, 4, 128, 64, 256};
  problem.job.parallel.shard_optimizer = ShardOptimizer::kOn;
  for (const char* host : {"one", "one", "far", "farther"})
    add_layered({.host = host, .type = "a", .per_sample = 0.004, .fixed = 0.0001}, &problem);
  PlanningCase near = problem;
  problem.add_link("one", "one", 1e-5, 4e9)
      .add_link("one", "far", 1e-4, 1e6)
      .add_link("one", "farther", 1e-4, 1e5)
      .add_link("far", "farther", 1e-4, 1e5);
  near.profile.links = problem.profile.links;
  for (int i = 0; i < 2; ++i) {
    near.fleet.devices.pop_back();
    near.profile.devices.pop_back();
  }
  const Result<Plan> with = plan_of(problem), without = plan_of(near);
  ASSERT_TRUE(with) << with.error().message;
  ASSERT_TRUE(without) << without.error().message;
  EXPECT_TRUE(with->shard_optimizer);
  EXPECT_LE(with->prediction.step_seconds, without->prediction.step_seconds * (1 + kNearly));
}

/// Where no two devices are on one host, the ends of a replica, which share a matrix, are where the
/// link is best.
TEST(FormProperties, EndsAreLinkedBest) {
  PlanningCase problem(32);
  problem.job.model = {"gpt", 6, 4, 256, 64, 4096};
  problem.job.parallel.shard_optimizer = ShardOptimizer::kOff;
  for (const char* host : {"a", "b", "c", "d"})
    add_layered({.host = host, .type = host, .per_sample = 0.004, .memory_mib = 60}, &problem);
  for (const auto& [one, other] : {std::pair("a", "b"), {"b", "c"}, {"c", "d"}, {"a", "c"}})
    problem.add_link(one, other, 1e-4, 1e9);
  problem.add_link("a", "d", 1e-4, 1e6).add_link("b", "d", 1e-4, 1e6);
  const Result<Plan> plan = plan_of(problem);
  ASSERT_TRUE(plan) << plan.error().message;
  for (const ReplicaPlan& replica : plan->replicas) {
    std::vector<std::string> ends;
    for (const StagePlan* stage : {&replica.stages.front(), &replica.stages.back()})
      ends.push_back(plan->ranks[static_cast<size_t>(stage->ranks[0].value())].host);
    std::sort(ends.begin(), ends.end());
    EXPECT_NE(ends, (std::vector<std::string>{"a", "d"}));
    EXPECT_NE(ends, (std::vector<std::string>{"b", "d"}));
  }
  EXPECT_LT(plan->prediction.communication_seconds, 0.1 * plan->prediction.step_seconds);
}

/// Of devices whose blocks compute again, which is settled after the devices are.
RC_GTEST_PROP(Forms, AnotherDeviceThatComputesAgainNeverMakesItSlower, ()) {
  PlanningCase problem(4);
  problem.job.model = {"gpt", 6, 4, 128, 512, 256};
  problem.job.parallel.shard_optimizer = ShardOptimizer::kOff;
  const int devices = *rc::gen::inRange(2, 6);
  double before = kNoStep;
  for (int i = 0; i < devices; ++i) {
    if (i + 1 == devices) before = step_of(problem);
    add_layered({.type = std::string(1, static_cast<char>('a' + i)),
                 .per_sample = 0.001 * *rc::gen::inRange(2, 12),
                 .memory_mib = *rc::gen::inRange(8, 26),
                 .recomputing = true},
                &problem);
  }
  RC_ASSERT(step_of(problem) <= before * (1 + kWorthLooking));
}

/// With the last device nothing need be computed again, which is slower than to do without it.
TEST(Forms, ADeviceThatSparesComputingAgainMayBeLeftOut) {
  PlanningCase problem(4);
  problem.job.model = {"gpt", 6, 4, 128, 512, 256};
  problem.job.parallel.shard_optimizer = ShardOptimizer::kOff;
  const auto add = [&](std::string type, double per_sample, int64_t memory_mib) {
    add_layered({.type = std::move(type),
                 .per_sample = per_sample,
                 .memory_mib = memory_mib,
                 .recomputing = true},
                &problem);
  };
  add("a", 0.002, 8);
  add("b", 0.005, 18);
  add("c", 0.006, 12);
  add("d", 0.002, 14);
  const double before = step_of(problem);
  add("e", 0.009, 16);
  EXPECT_TRUE(search_pipelines(problem.request(), layer_bytes_counter(problem)));
  EXPECT_LE(step_of(problem), before * (1 + kNearly));
}

/// Whether every rank fits by what was counted of it.
std::vector<bool> ranks_fit(const Plan& plan, const PlanningCase& problem) {
  const auto counted = layer_bytes_counter(problem).plan(plan);
  std::vector<bool> fit;
  for (size_t rank = 0; rank < plan.ranks.size(); ++rank)
    fit.push_back((*counted)[rank].total <=
                  usable_memory(*problem.profile.find(plan.ranks[rank].device), kMemoryHeadroom));
  return fit;
}

/// Of devices that are too small: what is computed again fits, and with a block less of any stage
/// that stage does not.
TEST(Forms, RecomputeAsFewBlocksAsFit) {
  int only_so = 0, quicker_so = 0;
  for (const int64_t memory_mib : {13, 14, 15, 16, 18, 20, 24}) {
    PlanningCase problem(4);
    problem.job.model = {"gpt", 6, 4, 128, 512, 256};
    for (int i = 0; i < 3; ++i)
      add_layered({.per_sample = 0.004, .memory_mib = memory_mib, .recomputing = true}, &problem);
    problem.job.parallel.recompute = false;
    const Result<Plan> without = plan_of(problem);
    problem.job.parallel.recompute = true;
    const Result<Plan> plan = plan_of(problem);
    ASSERT_TRUE(plan) << plan.error().message;
    EXPECT_THAT(ranks_fit(*plan, problem), ::testing::Each(true));
    bool any = false;
    for (size_t s = 0; s < plan->replicas[0].stages.size(); ++s) {
      Plan less = *plan;
      std::vector<Recompute>& again = less.replicas[0].stages[s].recompute;
      const auto last = std::find(again.rbegin(), again.rend(), Recompute::kBlock);
      if (last == again.rend()) continue;
      *last = Recompute::kNone;
      any = true;
      const Rank rank = less.replicas[0].stages[s].ranks.front();
      EXPECT_FALSE(ranks_fit(less, problem)[static_cast<size_t>(rank.value())])
          << memory_mib << " MiB, stage " << s;
    }
    only_so += any && !without;
    quicker_so += any && without;
    if (without) {
      EXPECT_LE(plan->prediction.step_seconds, without->prediction.step_seconds);
    }
  }
  EXPECT_GT(only_so, 0);
  EXPECT_GT(quicker_so, 0);
}

/// Two to six cards of each of three types, each type on a host of its own.
PlanningCase case_of_three_types(std::mt19937& random) {
  const auto among = [&](const std::vector<double>& values) {
    return values[random() % values.size()];
  };
  PlanningCase problem(static_cast<int>(among({16, 24, 48})));
  problem.job.model = testing::kSmallGpt2;
  problem.job.parallel.shard_optimizer = ShardOptimizer::kOff;
  const double memory = among({700, 1500, 6000});
  for (const char* type : {"a", "b", "c"}) {
    const LayeredDevice device{.host = type,
                               .type = type,
                               .per_sample = 0.001 * among({2, 3, 5, 8, 14}),
                               .memory_mib = static_cast<int64_t>(memory * among({1, 1, 2})),
                               .recomputing = true};
    for (auto left = static_cast<int>(among({3, 4, 5, 6})); left > 0; --left)
      add_layered(device, &problem);
    problem.add_link(type, type, 2e-5, 1e9 * among({2, 10}));
  }
  const double bandwidth = 1e8 * among({3, 10, 30});
  for (const auto& [from, to] : {std::pair("a", "b"), {"b", "c"}, {"a", "c"}})
    problem.add_link(from, to, 4e-5, bandwidth);
  return problem;
}

TEST(Forms, OfManyDevicesNoTypeIsBetterLeftOut) {
  std::mt19937 random(20261130);
  for (int i = 0; i < 5; ++i) {
    const PlanningCase problem = case_of_three_types(random);
    const double all = step_of(problem);
    for (const char* type : {"a", "b", "c"}) {
      PlanningCase fewer = problem;
      std::erase_if(fewer.fleet.devices, [&](const auto& device) { return device.type == type; });
      const double other = step_of(fewer);
      EXPECT_LE(all, other * (1 + kWorthLooking)) << i << " without " << type;
    }
  }
}

}  // namespace
}  // namespace motley
