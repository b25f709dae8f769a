// Plans, played through: random cards and links that the simulation knows exactly, a profile as the
// profiler would measure it, the plan made from that, and the steps event by event as the engine
// takes them (worker/train/stepper.h).

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "planner/costs/cost_model.h"
#include "planner/plain/search.h"
#include "tests/support/new_seeds.h"
#include "tests/support/planning_case.h"
#include "tests/support/random_cases.h"

namespace motley {
namespace {

using testing::PlanningCase;

constexpr uint32_t kFixedSeeds = testing::random_cases(60);
constexpr int kNewSeeds = 12;

class World {
 public:
  explicit World(uint32_t seed) : random_(seed), problem_(draw(4, 200)) {
    const int hosts = draw(1, 3);
    for (int i = 0, devices = draw(1, 12); i < devices; ++i) add_card(i * hosts / devices);
    for (int a = 0; a < hosts; ++a)
      for (int b = a; b < hosts; ++b) add_link(a, b);
    if (draw(0, 2) > 0) return;
    problem_.job.train.grain = draw(1, std::min(6, problem_.job.train.global_batch));
    if (draw(0, 1) > 0) problem_.job.train.numerics = Numerics::kExact;
  }

  PlanRequest request() const { return problem_.request(); }

  /// Seconds from the end of one step to the end of the next.
  double play(const Plan& plan) const {
    std::vector<Nanos> clocks(plan.ranks.size(), Nanos(0));
    Nanos ended(0), last(0);
    for (int step = 1; step <= 3; ++step) {
      for (size_t i = 0; i < plan.replicas.size(); ++i) {
        const Rank rank = plan.replicas[i].stages[0].ranks[0];
        play_section(plan, static_cast<int>(i), step > 1, &clocks[index(rank)]);
      }
      play_reduction(plan, &clocks);
      last = *std::max_element(clocks.begin(), clocks.end()) - ended;
      ended += last;
    }
    return seconds_of(last);
  }

 private:
  /// Times of micro-batches from 1 sample on: neither smooth nor always rising.
  void add_card(int host) {
    problem_.add({.host = "host" + std::to_string(host),
                  .step_overhead = draw_nanos(0, 5e-3),
                  .update = draw(0, 1) * draw_nanos(0, 2e-2),
                  .largest_micro_batch = draw(6, 24)});
    DeviceProfile& device = problem_.profile.devices.back();
    LayerCurve& curve = device.curves[0];
    curve.points.clear();
    const double fixed = draw_nanos(0, 1e-2), per_sample = draw_nanos(1e-3, 2e-2);
    const double roughness = draw(0, 1) * 0.3;
    for (size_t size = 1; size <= device.memory.size(); ++size) {
      const double smooth = fixed + per_sample * static_cast<double>(size);
      const double seconds = smooth * (1 + roughness * draw_nanos(0, 1));
      curve.points.push_back({static_cast<int>(size), seconds_of(nanos_of_seconds(seconds)), 0, 1});
    }
    curve.fit = fit_curve(curve.points);
  }

  /// Those within a host are the quickest.
  void add_link(int a, int b) {
    const double least = a == b ? 1e9 : 1e6;
    problem_.add_link("host" + std::to_string(a), "host" + std::to_string(b),
                      a == b ? 1e-6 : draw_nanos(1e-6, 1e-3), least * std::exp2(draw(0, 6)));
  }

  /// The update of the step before, the overhead of this one and its micro-batches.
  void play_section(const Plan& plan, int replica, bool update, Nanos* clock) const {
    const Rank rank = plan.replicas[static_cast<size_t>(replica)].stages[0].ranks[0];
    const DeviceProfile& card = *problem_.profile.find(plan.ranks[index(rank)].device);
    if (update) *clock += nanos_of_seconds(card.update_seconds);
    *clock += nanos_of_seconds(card.step_overhead_seconds);
    for (const SampleRange& range : micro_batches_of(plan, replica)) {
      const CurvePoint& point = card.curves[0].points[static_cast<size_t>(range.count) - 1];
      *clock += nanos_of_seconds(point.seconds);
    }
  }

  /// A ring in the order of ranks; it begins when the last has arrived and ends for all at once.
  void play_reduction(const Plan& plan, std::vector<Nanos>* clocks) const {
    const size_t ranks = clocks->size();
    clocks->assign(ranks, *std::max_element(clocks->begin(), clocks->end()));
    const double part = static_cast<double>(gradient_bytes(problem_.job).value()) / ranks;
    for (size_t round = 0; round < 2 * (ranks - 1); ++round) {
      const std::vector<Nanos> before = *clocks;
      for (size_t to = 0; to < ranks; ++to) {
        const size_t from = (to + ranks - 1) % ranks;
        const LinkProfile& link = link_between(plan.ranks[from].host, plan.ranks[to].host);
        (*clocks)[to] = std::max(before[from], before[to]) +
                        nanos_of_seconds(link.latency_seconds + part / link.bytes_per_second);
      }
    }
    clocks->assign(ranks, *std::max_element(clocks->begin(), clocks->end()));
  }

  const LinkProfile& link_between(const std::string& a, const std::string& b) const {
    return *std::find_if(problem_.profile.links.begin(), problem_.profile.links.end(),
                         [&](const LinkProfile& link) {
                           return (link.between[0] == a && link.between[1] == b) ||
                                  (link.between[0] == b && link.between[1] == a);
                         });
  }

  static size_t index(Rank rank) { return static_cast<size_t>(rank.value()); }
  int draw(int low, int high) { return std::uniform_int_distribution(low, high)(random_); }
  double draw_nanos(double low, double high) {
    return seconds_of(nanos_of_seconds(std::uniform_real_distribution(low, high)(random_)));
  }

  std::mt19937 random_;
  PlanningCase problem_;
};

void expect_plan_to_hold(uint32_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  const World world(seed);
  const Result<Plan> plan = plan_search(world.request());
  ASSERT_TRUE(plan) << plan.error().message;
  const double step = world.play(*plan);
  const Prediction& predicted = plan->prediction;
  EXPECT_NEAR(step / predicted.step_seconds, 1, 1e-4);
  EXPECT_LE(plan->global_batch / step, predicted.integer_bound_efficiency *
                                           predicted.solo_sum_samples_per_second * (1 + 1e-6));
  const Result<Plan> equal = plan_equal_split(world.request());
  ASSERT_TRUE(equal) << equal.error().message;
  EXPECT_GE(world.play(*equal), step * (1 - 1e-6));
}

TEST(StepSimulation, PlansHoldWhatTheyPredict) {
  for (uint32_t seed = 1; seed <= kFixedSeeds; ++seed) expect_plan_to_hold(seed);
}

TEST(StepSimulation, AlsoWithNewSeeds) { for_new_seeds(kNewSeeds, expect_plan_to_hold); }

}  // namespace
}  // namespace motley
