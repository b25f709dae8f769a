// What holds of the plan of any problem.

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "planner/plain/grain_search.h"
#include "planner/plain/search.h"
#include "tests/support/planning_case.h"

namespace motley {
namespace {

using testing::PlanningCase;

PlanningCase any_case() {
  std::mt19937 random(*rc::gen::noShrink(rc::gen::arbitrary<uint32_t>()));
  return testing::random_case(random, 5);
}

size_t any_device(const PlanningCase& problem) {
  return *rc::gen::inRange<size_t>(0, problem.profile.devices.size());
}

/// kNever where there is no plan.
double step_of(const PlanningCase& problem) {
  const Result<Plan> plan = plan_search(problem.request());
  return plan ? plan->prediction.step_seconds : std::numeric_limits<double>::infinity();
}

RC_GTEST_PROP(PlanProperties, TheDealSumsToTheGlobalBatch, ()) {
  const PlanningCase problem = any_case();
  const Result<Plan> plan = plan_search(problem.request());
  RC_PRE(plan.has_value());
  int next = 0;
  for (int i = 0; i < static_cast<int>(plan->replicas.size()); ++i) {
    for (const SampleRange& range : micro_batches_of(*plan, i)) {
      RC_ASSERT(range.first == next);
      RC_ASSERT(range.count > 0);
      next += range.count;
    }
  }
  RC_ASSERT(next == problem.job.train.global_batch);
}

RC_GTEST_PROP(PlanProperties, TheBoundOnWholeGrainsIsOne, ()) {
  const PlanningCase problem = any_case();
  for (const bool searched : {true, false}) {
    const Result<Plan> plan =
        searched ? plan_search(problem.request()) : plan_equal_split(problem.request());
    RC_PRE(plan.has_value());
    const Prediction& predicted = plan->prediction;
    RC_ASSERT(predicted.integer_bound_efficiency * predicted.solo_sum_samples_per_second >=
              predicted.samples_per_second * (1 - 1e-12));
  }
}

RC_GTEST_PROP(PlanProperties, NoHostsReduceQuickerThanTheSearchAssumes, ()) {
  const PlanningCase problem = any_case();
  std::vector<Candidate> candidates;
  for (const DeviceSpec& spec : problem.fleet.devices)
    candidates.push_back({&spec, problem.profile.find(spec.id)});
  const ReductionTable table(ReductionModel(problem.profile, gradient_bytes(problem.job)),
                             candidates);
  std::vector<bool> hosts;
  for (int i = 0; i < table.host_count(); ++i) hosts.push_back(*rc::gen::arbitrary<bool>());
  int room = 0;
  for (size_t i = 0; i < candidates.size(); ++i)
    room += hosts[static_cast<size_t>(table.host_of(i))] ? 1 : 0;
  for (int ranks = 2; ranks <= room; ++ranks)
    for (int host = 0; host < table.host_count(); ++host)
      if (hosts[static_cast<size_t>(host)])
        RC_ASSERT(table.least_seconds(ranks, ranks, host) <= table.seconds(ranks, hosts));
  const int low = *rc::gen::inRange(2, 8), high = low + *rc::gen::inRange(0, 8);
  for (int ranks = low; ranks <= high; ++ranks)
    for (int a = 0; a < table.host_count(); ++a) {
      RC_ASSERT(table.least_seconds(low, high, a) <= table.least_seconds(ranks, ranks, a));
      for (int b = 0; b < table.host_count(); ++b)
        RC_ASSERT(table.least_pair_seconds(low, high, a, b) <= table.pair_seconds(ranks, a, b));
    }
}

RC_GTEST_PROP(PlanProperties, AnEqualSplitIsNeverQuicker, ()) {
  PlanningCase problem = any_case();
  problem.job.train.grain = problem.job.train.grain.value_or(1);
  const Result<Plan> equal = plan_equal_split(problem.request());
  RC_PRE(equal.has_value());
  RC_ASSERT(step_of(problem) <= equal->prediction.step_seconds);
}

RC_GTEST_PROP(PlanProperties, NoDeviceAloneIsQuickerWithAllOfAStepAtOnce, ()) {
  PlanningCase problem = any_case();
  problem.job.devices.count.reset();
  RC_PRE(problem.job.train.numerics != Numerics::kExact);  // where micro-batches are single grains
  const double step = step_of(problem);
  const int samples = problem.job.train.global_batch;
  for (const DeviceProfile& device : problem.profile.devices)
    if (const int most = largest_micro_batch(device, problem.request().memory_headroom);
        most >= samples)
      RC_ASSERT(step <= device.step_overhead_seconds + device.curves[0].seconds_at(samples) +
                            device.update_seconds + 1e-12);
}

RC_GTEST_PROP(PlanProperties, MoreMemoryNeverMakesItSlower, ()) {
  PlanningCase problem = any_case();
  const double before = step_of(problem);
  DeviceProfile& device = problem.profile.devices[any_device(problem)];
  device.memory_limit += Bytes(*rc::gen::inRange(0, 16) << 20);
  RC_ASSERT(step_of(problem) <= before);
}

RC_GTEST_PROP(PlanProperties, AFasterDeviceNeverMakesItSlower, ()) {
  PlanningCase problem = any_case();
  const double before = step_of(problem);
  const double factor = 0.01 * *rc::gen::inRange(10, 100);
  DeviceProfile& device = problem.profile.devices[any_device(problem)];
  device.step_overhead_seconds *= factor;
  device.update_seconds *= factor;
  LayerCurve& curve = device.curves[0];
  for (CurvePoint& point : curve.points) point.seconds *= factor;
  curve.fit.fixed *= factor;
  curve.fit.per_sample *= factor;
  RC_ASSERT(step_of(problem) <= before);
}

RC_GTEST_PROP(PlanProperties, AnotherDeviceNeverMakesItSlower, ()) {
  PlanningCase problem = any_case();
  problem.job.devices.count.reset();
  const double before = step_of(problem);
  const std::string host = problem.fleet.devices.back().host;
  problem.add({.host = host,
               .per_sample = 0.001 * *rc::gen::inRange(1, 20),
               .largest_micro_batch = *rc::gen::inRange(1, 8)});
  RC_ASSERT(step_of(problem) <= before);
}

RC_GTEST_PROP(PlanProperties, TheOrderOfDevicesChangesNamesOnly, ()) {
  const PlanningCase problem = any_case();
  std::vector<size_t> order(problem.fleet.devices.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::mt19937 random(*rc::gen::arbitrary<uint32_t>());
  std::shuffle(order.begin(), order.end(), random);
  const Result<Plan> one = plan_search(problem.request());
  const Result<Plan> other = plan_search(problem.permuted(order).request());
  RC_ASSERT(one.has_value() == other.has_value());
  if (!one) return;
  RC_ASSERT(one->prediction.step_seconds == other->prediction.step_seconds);
  RC_ASSERT(one->world_size() == other->world_size());
  RC_ASSERT(one->grain == other->grain);
}

RC_GTEST_PROP(PlanProperties, TheOrderInTheProfileChangesNothing, ()) {
  PlanningCase problem = any_case();
  const Result<Plan> one = plan_search(problem.request());
  std::reverse(problem.profile.devices.begin(), problem.profile.devices.end());
  std::reverse(problem.profile.links.begin(), problem.profile.links.end());
  const Result<Plan> other = plan_search(problem.request());
  RC_ASSERT(one.has_value() == other.has_value());
  if (one) RC_ASSERT(to_json(*one).dump() == to_json(*other).dump());
}

RC_GTEST_PROP(PlanProperties, FourTimesTheTimesIsFourTimesTheStep, ()) {
  const PlanningCase problem = any_case();
  const Result<Plan> one = plan_search(problem.request());
  const Result<Plan> other = plan_search(problem.scaled(4).request());
  RC_ASSERT(one.has_value() == other.has_value());
  if (!one) return;
  RC_ASSERT(4 * one->prediction.step_seconds == other->prediction.step_seconds);
  RC_ASSERT(one->replicas.size() == other->replicas.size());
}

TEST(LargeBatches, AreCutAsFinelyAsTheSmallestDeviceNeeds) {
  PlanningCase problem(1'000'000);
  problem.add({.largest_micro_batch = 128}).add({.largest_micro_batch = 12});
  const Result<Plan> plan = plan_search(problem.request());
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->world_size(), 2);
  EXPECT_GT(plan->prediction.samples_per_second,
            0.99 * plan->prediction.solo_sum_samples_per_second);
}

}  // namespace
}  // namespace motley
