// Replicas that are all alike, over hosts between which links are slow: what they exchange is least
// where the same layers of all of them lie on the same host.

#include "planner/pipelines/even_replicas.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "planner/costs/cost_model.h"
#include "planner/pipelines/pipeline_search.h"
#include "tests/support/layered_case.h"

namespace motley {
namespace {

using testing::PlanningCase;

std::string host(int number) { return "host" + std::to_string(number); }

/// So many cards on each host, of each host so many seconds a sample.
PlanningCase cards_on_hosts(int cards, const std::vector<double>& per_sample, int batch) {
  PlanningCase problem(batch);
  problem.job.model = testing::kSmallGpt2;
  for (int h = 0; h < std::ssize(per_sample); ++h)
    for (int card = 0; card < cards; ++card)
      testing::add_layered({.host = host(h), .per_sample = per_sample[static_cast<size_t>(h)]},
                           &problem);
  for (int a = 0; a < std::ssize(per_sample); ++a)
    for (int b = a; b < std::ssize(per_sample); ++b)
      problem.add_link(host(a), host(b), 5e-5, a == b ? 2e10 : 1.25e9);
  return problem;
}

/// Alike replicas, one of whose stages is on each of `hosts`, up to these layers.
Plan alike(const PlanningCase& problem, int replicas, int micro_batch,
           const std::vector<int>& hosts, const std::vector<int>& last) {
  Plan plan;
  plan.global_batch = problem.job.train.global_batch;
  plan.grain = 1;
  std::set<std::string> used;
  for (int number = 0; number < replicas; ++number) {
    ReplicaPlan replica{{}, micro_batch, (plan.global_batch + number) / replicas};
    for (size_t s = 0; s < hosts.size(); ++s) {
      const auto device = std::find_if(
          problem.fleet.devices.begin(), problem.fleet.devices.end(), [&](const DeviceSpec& one) {
            return one.host == host(hosts[s]) && !used.contains(one.id);
          });
      used.insert(device->id);
      StagePlan& stage = replica.stages.emplace_back();
      stage.first_layer = s == 0 ? 0 : last[s - 1] + 1;
      stage.last_layer = last[s];
      stage.ranks = {Rank(plan.world_size())};
      stage.shares = {1.0};
      plan.ranks.push_back({device->id, device->host, device->type});
    }
    plan.replicas.push_back(std::move(replica));
  }
  EXPECT_TRUE(predict_step(problem.request(), &plan));
  return plan;
}

TEST(EvenReplicas, OfTwoHostsAreAsQuickAsTheQuickestWhoseEndsAreOnTheFirst) {
  const PlanningCase problem = cards_on_hosts(4, {0.003, 0.0039}, 64);
  double least =
      1e9;  // seconds, of two replicas that go from the quick host over the slow and back
  for (int a = 0; a < 11; ++a)
    for (int b = a + 1; b < 12; ++b)
      for (int c = b + 1; c < 13; ++c) {
        const Plan plan = alike(problem, 2, 1, {0, 1, 1, 0}, {a, b, c, 13});
        least = std::min(least, plan.prediction.step_seconds);
      }
  const Result<Plan> found =
      search_pipelines(problem.request(), testing::layer_bytes_counter(problem));
  ASSERT_TRUE(found);
  EXPECT_LE(found->prediction.step_seconds, least * 1.005);
  EXPECT_LE(found->search.lower_bound_step_seconds, least);
}

TEST(EvenReplicas, OfManyCardsThatAreAlikeAreLookedForByHost) {
  const PlanningCase problem = cards_on_hosts(6, {0.0009, 0.0009, 0.0009}, 64);
  const Plan by_hand = alike(problem, 3, 6, {0, 0}, {7, 13});  // within a host
  const Result<Plan> found =
      search_pipelines(problem.request(), testing::layer_bytes_counter(problem));
  ASSERT_TRUE(found);
  EXPECT_LE(found->prediction.step_seconds, by_hand.prediction.step_seconds);
}

TEST(EvenReplicas, AreWithinTheirMemoryAndWhatTheJobAsksFor) {
  PlanningCase problem = cards_on_hosts(4, {0.0009, 0.0017}, 64);
  problem.job.parallel.data = 2;
  problem.job.parallel.pipeline = 3;
  const PlanRequest request = problem.request();
  const MemoryCounter counter = testing::layer_bytes_counter(problem);
  const PipelineSpace space(request, *group_devices(request, GroupBy::kHost));
  const PipelineCosts costs =
      *PipelineCosts::make(request, space.groups, space.micro_batches, counter.layers);
  int64_t nodes = 0;
  const auto found = search_even_replicas(space, counter.plan, costs, 10, &nodes);
  ASSERT_TRUE(found && !found->empty());
  EXPECT_GT(nodes, 0);
  const Plan& plan = found->front();
  ASSERT_EQ(plan.replicas.size(), 2U);
  for (const ReplicaPlan& replica : plan.replicas) EXPECT_EQ(replica.stages.size(), 3U);
  const double step = plan.prediction.step_seconds;
  const auto quicker = search_even_replicas(space, counter.plan, costs, step, &nodes);
  ASSERT_TRUE(quicker);
  EXPECT_TRUE(quicker->empty());  // than itself

  const CountMemory too_little = [&](const Plan& asked) {
    auto bytes = counter.plan(asked);
    for (RankMemory& rank : *bytes) rank.total = Bytes(int64_t{1} << 40);
    return bytes;
  };
  const auto none = search_even_replicas(space, too_little, costs, 10, &nodes);
  ASSERT_TRUE(none);
  EXPECT_TRUE(none->empty());
}

}  // namespace
}  // namespace motley
