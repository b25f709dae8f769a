#include "planner/pipelines/refine_cuts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "planner/costs/cost_model.h"
#include "planner/pipelines/cut_changes.h"
#include "tests/support/layered_case.h"

namespace motley {
namespace {

using testing::PlanningCase;

constexpr int kLayers = 14;

/// Two cards on each of four hosts, between which links are slow; every other host's have so much
/// memory.
PlanningCase cards_with(int64_t memory_mib) {
  PlanningCase problem(64);
  problem.job.model = testing::kSmallGpt2;
  for (int i = 0; i < 8; ++i)
    testing::add_layered({.host = "host" + std::to_string(i / 2),
                          .per_sample = 0.002,
                          .memory_mib = i % 4 < 2 ? 8192 : memory_mib,
                          .recomputing = true},
                         &problem);
  for (int a = 0; a < 4; ++a)
    for (int b = a; b < 4; ++b)
      problem.add_link("host" + std::to_string(a), "host" + std::to_string(b), 30e-6,
                       a == b ? 1e10 : 3e8);
  return problem;
}

/// The first layers of the model on a card, the others on `other`; of some blocks what they
/// computed is computed again.
ReplicaPlan replica_of(int card, int other, int first_layers) {
  ReplicaPlan replica{{}, 2, 16};
  for (const int rank : {card, other}) {
    StagePlan& stage = replica.stages.emplace_back();
    stage.first_layer = rank == card ? 0 : first_layers;
    stage.last_layer = (rank == card ? first_layers : kLayers) - 1;
    stage.ranks = {Rank(rank)};
    stage.shares = {1.0};
    for (LayerIndex layer = stage.first_layer; layer <= stage.last_layer; ++layer)
      stage.recompute.push_back(layer % 3 == 1 ? Recompute::kBlock : Recompute::kNone);
  }
  return replica;
}

/// On the first devices, as many as there are stages.
Plan plan_with(const PlanningCase& problem, std::vector<ReplicaPlan> replicas) {
  Plan plan;
  plan.global_batch = problem.job.train.global_batch;
  plan.grain = 1;
  plan.replicas = std::move(replicas);
  for (size_t rank = 0; rank < plan.replicas.size() * plan.replicas[0].stages.size(); ++rank) {
    const DeviceSpec& device = problem.fleet.devices[rank];
    plan.ranks.push_back({device.id, device.host, device.type});
  }
  plan.owners = even_ownership(plan, problem.job.model);
  EXPECT_TRUE(predict(problem.request(), &plan));
  return plan;
}

/// Four replicas over two hosts each.
Plan cut_after(const PlanningCase& problem, int first_layers) {
  std::vector<ReplicaPlan> replicas;
  for (const int card : {0, 1, 4, 5}) replicas.push_back(replica_of(card, card + 2, first_layers));
  return plan_with(problem, replicas);
}

bool fits(const PlanningCase& problem, const Plan& plan) {
  const auto counted = testing::layer_bytes_counter(problem).plan(plan);
  EXPECT_TRUE(counted);
  for (size_t rank = 0; rank < counted->size(); ++rank)
    if ((*counted)[rank].total > usable_memory(problem.profile.devices[rank], kMemoryHeadroom))
      return false;
  return true;
}

Plan refined(const PlanningCase& problem, Plan plan) {
  const MemoryCounter counter = testing::layer_bytes_counter(problem);
  const auto done = refine_cuts(problem.request(), counter.plan, &plan);
  EXPECT_TRUE(done) << done.error().message;
  return plan;
}

/// Of all places to cut all replicas at that fit.
double least_step(const PlanningCase& problem) {
  double least = 1e9;
  for (int first_layers = 1; first_layers < kLayers; ++first_layers) {
    const Plan plan = cut_after(problem, first_layers);
    if (fits(problem, plan)) least = std::min(least, plan.prediction.step_seconds);
  }
  return least;
}

TEST(RefineCuts, FindsTheQuickestPlaceForAllReplicas) {
  const PlanningCase problem = cards_with(8192);
  for (const int first_layers : {1, 3, 12}) {
    const Plan plan = refined(problem, cut_after(problem, first_layers));
    EXPECT_LE(plan.prediction.step_seconds, least_step(problem) * 1.002) << first_layers;
    EXPECT_TRUE(validate(plan, problem.job.model));
    EXPECT_EQ(plan.search.step_seconds, plan.prediction.step_seconds);
  }
}

TEST(RefineCuts, StaysWithinMemory) {
  const PlanningCase problem = cards_with(1500);
  ASSERT_GT(least_step(problem), least_step(cards_with(8192)));
  const Plan plan = refined(problem, cut_after(problem, kLayers - 1));
  EXPECT_LE(plan.prediction.step_seconds, least_step(problem) * 1.002);
  EXPECT_TRUE(fits(problem, plan));
}

TEST(RefineCuts, LayersAreComputedAgainWhereverTheyAre) {
  const PlanningCase problem = cards_with(8192);
  const Plan plan = refined(problem, cut_after(problem, 1));
  ASSERT_GT(plan.replicas[0].stages[0].layers(), 1);
  for (const ReplicaPlan& replica : plan.replicas)
    for (const StagePlan& stage : replica.stages) {
      ASSERT_EQ(std::ssize(stage.recompute), stage.layers());
      for (int i = 0; i < stage.layers(); ++i)
        EXPECT_EQ(stage.recompute[static_cast<size_t>(i)] == Recompute::kBlock,
                  (stage.first_layer + i) % 3 == 1);
    }
}

/// Three stages each, the one in the middle of a single layer, between two that only grow together.
TEST(RefineCuts, MovesTwoEndsAtOnce) {
  PlanningCase problem = cards_with(8192);
  problem.profile.links.clear();
  for (int a = 0; a < 4; ++a)
    for (int b = a; b < 4; ++b)
      problem.add_link("host" + std::to_string(a), "host" + std::to_string(b), 30e-6, 3e8);
  const auto cut_at = [&](int first, int second) {
    std::vector<ReplicaPlan> replicas;
    for (const int card : {0, 1}) {
      ReplicaPlan& replica = replicas.emplace_back(ReplicaPlan{{}, 2, 32});
      for (const auto& [rank, from, until] :
           {std::tuple(card, 0, first), std::tuple(card + 2, first, second),
            std::tuple(card + 4, second, kLayers)}) {
        StagePlan& stage = replica.stages.emplace_back();
        stage.first_layer = from;
        stage.last_layer = until - 1;
        stage.ranks = {Rank(rank)};
        stage.shares = {1.0};
      }
    }
    return plan_with(problem, replicas);
  };
  double least = 1e9;
  for (int first = 1; first < kLayers; ++first)
    for (int second = first + 1; second < kLayers; ++second)
      least = std::min(least, cut_at(first, second).prediction.step_seconds);
  for (const auto& [first, second] : {std::pair(7, 8), std::pair(1, 2), std::pair(12, 13)}) {
    const Plan plan = refined(problem, cut_at(first, second));
    EXPECT_LE(plan.prediction.step_seconds, least * 1.005) << first << " and " << second;
    EXPECT_TRUE(validate(plan, problem.job.model));
  }
}

/// The first stages compute nothing again, and could not: it was not measured of their cards.
TEST(RefineCuts, OfStagesSomeOfWhichComputeAgain) {
  PlanningCase problem = cards_with(8192);
  for (const int card : {0, 1, 4, 5})
    std::erase_if(problem.profile.devices[static_cast<size_t>(card)].curves,
                  [](const LayerCurve& curve) { return curve.recompute != Recompute::kNone; });
  std::vector<ReplicaPlan> replicas;
  for (const int card : {0, 1, 4, 5}) {
    replicas.push_back(replica_of(card, card + 2, 3));
    replicas.back().stages[0].recompute.clear();
  }
  const Plan plan = refined(problem, plan_with(problem, replicas));
  EXPECT_TRUE(validate(plan, problem.job.model));
  for (const ReplicaPlan& replica : plan.replicas)
    EXPECT_EQ(std::count(replica.stages[0].recompute.begin(), replica.stages[0].recompute.end(),
                         Recompute::kBlock),
              0);
}

/// Nothing that they exchange crosses a slow link, and ten ranks are more than all is tried of.
TEST(RefineCuts, OfManyRanksWithinHostsCutsStay) {
  PlanningCase problem = cards_with(8192);
  for (int card = 0; card < 2; ++card)
    testing::add_layered({.host = "host4", .per_sample = 0.002, .recomputing = true}, &problem);
  problem.add_link("host4", "host4", 30e-6, 1e10);
  for (int host = 0; host < 4; ++host)
    problem.add_link("host" + std::to_string(host), "host4", 30e-6, 3e8);
  problem.job.train.global_batch = 80;
  std::vector<ReplicaPlan> replicas;
  for (int card = 0; card < 10; card += 2) replicas.push_back(replica_of(card, card + 1, 1));
  const Plan plan = refined(problem, plan_with(problem, replicas));
  for (const ReplicaPlan& replica : plan.replicas) EXPECT_EQ(replica.stages[0].layers(), 1);
}

/// Two replicas of two stages, whose gradients are summed over a slow link until stages with the
/// same layers are on one host.
TEST(RefineCuts, ExchangesDevices) {
  PlanningCase problem = cards_with(8192);
  problem.job.train.global_batch = 32;
  const Plan before = plan_with(problem, {replica_of(0, 2, 7), replica_of(3, 1, 7)});
  const Plan plan = refined(problem, before);
  EXPECT_LT(plan.prediction.communication_seconds, 0.7 * before.prediction.communication_seconds);
  for (size_t stage = 0; stage < 2; ++stage) {
    const auto host = [&](size_t replica) {
      const StagePlan& own = plan.replicas[replica].stages[stage];
      return plan.ranks[static_cast<size_t>(own.ranks[0].value())].host;
    };
    EXPECT_EQ(host(0), host(1)) << stage;
  }
}

/// Four cards of a host in a row that wait for each other most of the time.
TEST(RefineCuts, PutsStagesTogether) {
  PlanningCase problem(2);
  problem.job.model = testing::kSmallGpt2;
  for (int i = 0; i < 4; ++i)
    testing::add_layered({.per_sample = 0.002, .sharing = true}, &problem);
  problem.add_link("localhost", "localhost", 1e-6, 1e11);
  ReplicaPlan replica{{}, 1, 2};
  for (const auto& [rank, first, last] :
       {std::tuple(0, 0, 3), std::tuple(1, 4, 7), std::tuple(2, 8, 10), std::tuple(3, 11, 13)}) {
    StagePlan& stage = replica.stages.emplace_back(StagePlan{first, last, {Rank(rank)}, {1.0}});
    stage.precision = Precision::kFp32;
  }
  const Plan before = plan_with(problem, {replica});
  const Plan plan = refined(problem, before);
  EXPECT_LT(plan.prediction.step_seconds, 0.95 * before.prediction.step_seconds);
  EXPECT_LT(plan.replicas[0].stages.size(), 4u);
  EXPECT_TRUE(validate(plan, problem.job.model));
  problem.job.parallel.tensor = 1;
  EXPECT_EQ(refined(problem, before).replicas[0].stages.size(), 4u);
}

/// Six samples and then four take longer than as many each time.
TEST(RefineCuts, PartsSamplesAlike) {
  PlanningCase problem = cards_with(8192);
  problem.job.train.global_batch = 10;
  ReplicaPlan replica = replica_of(0, 1, 7);
  replica.micro_batch = 6;
  replica.grains = 10;
  const Plan plan = refined(problem, plan_with(problem, {replica}));
  for (replica.micro_batch = 1; replica.micro_batch <= 6; ++replica.micro_batch)
    EXPECT_LE(plan.prediction.step_seconds,
              plan_with(problem, {replica}).prediction.step_seconds * 1.005)
        << replica.micro_batch;
}

TEST(RefineCuts, GivesGrainsToWhoIsDoneSooner) {
  PlanningCase problem = cards_with(8192);
  problem.job.train.global_batch = 32;
  ReplicaPlan many = replica_of(0, 1, 7), few = replica_of(2, 3, 7);
  many.grains = 22;
  few.grains = 10;
  const Plan plan = refined(problem, plan_with(problem, {many, few}));
  EXPECT_LE(std::abs(plan.replicas[0].grains - plan.replicas[1].grains), 4);
}

/// One replica, a device a stage, as many layers each as are said.
ReplicaPlan row_of(const std::vector<std::pair<int, int>>& cards_and_layers) {
  ReplicaPlan replica{{}, 2, 64};
  LayerIndex first = 0;
  for (const auto& [card, layers] : cards_and_layers) {
    replica.stages.push_back(StagePlan{first, first + layers - 1, {Rank(card)}, {1.0}});
    replica.stages.back().precision = Precision::kFp32;
    first += layers;
  }
  return replica;
}

std::set<std::string> hosts_of(const Plan& plan) {
  std::set<std::string> hosts;
  for (const RankPlacement& rank : plan.ranks) hosts.insert(rank.host);
  return hosts;
}

/// Of two cards beside each other and one behind a link over which nothing is worth sending.
PlanningCase two_and_one() {
  PlanningCase problem(64);
  problem.job.model = testing::kSmallGpt2;
  for (const char* host : {"near", "near", "far"})
    testing::add_layered({.host = host, .per_sample = 0.002}, &problem);
  problem.add_link("near", "near", 30e-6, 1e10);
  problem.add_link("near", "far", 30e-6, 1e6);
  return problem;
}

TEST(RefineCuts, GivesUpAStageThatCostsMoreThanItBrings) {
  PlanningCase problem = two_and_one();
  const Plan before = plan_with(problem, {row_of({{0, 5}, {1, 5}, {2, 4}})});
  const Plan plan = refined(problem, before);
  EXPECT_EQ(hosts_of(plan), std::set<std::string>{"near"});
  ASSERT_EQ(plan.left_out.size(), 1u);
  EXPECT_EQ(plan.left_out[0].device, problem.fleet.devices[2].id);
  EXPECT_TRUE(validate(plan, problem.job.model));
  problem.job.devices.count = CountRange{3, 3};
  EXPECT_EQ(refined(problem, before).world_size(), 3);
}

TEST(RefineCuts, TakesADeviceThatWasLeftOutInstead) {
  PlanningCase problem = two_and_one();
  std::swap(problem.fleet.devices[1], problem.fleet.devices[2]);
  std::swap(problem.profile.devices[1], problem.profile.devices[2]);
  problem.job.parallel.pipeline = 2;
  Plan before = plan_with(problem, {row_of({{0, 7}, {1, 7}})});
  before.left_out = {{problem.fleet.devices[2].id, "unused"}};
  const Plan plan = refined(problem, before);
  EXPECT_EQ(hosts_of(plan), std::set<std::string>{"near"});
  ASSERT_EQ(plan.left_out.size(), 1u);
  EXPECT_EQ(plan.left_out[0].device, problem.fleet.devices[1].id);
  EXPECT_TRUE(validate(plan, problem.job.model));
}

/// Each with its layers, which an exchange of devices leaves where they are.
TEST(RefineCuts, NeighboursChangePlaces) {
  const PlanningCase problem = cards_with(8192);
  const Plan plan = plan_with(problem, {row_of({{0, 2}, {1, 3}, {2, 4}, {3, 5}})});
  const std::vector<std::pair<int, int>> wanted = {{2, 4}, {0, 2}, {1, 3}, {3, 5}};
  const auto is_wanted = [&](const CutChange& change) {
    Plan other = plan;
    if (!change(&other)) return false;
    std::vector<std::pair<int, int>> row;
    for (const StagePlan& stage : other.replicas[0].stages)
      row.emplace_back(stage.ranks[0].value(), stage.layers());
    return row == wanted && other.replicas[0].stages.front().first_layer == 0 &&
           other.replicas[0].stages.back().last_layer == kLayers - 1;
  };
  const std::vector<CutChange> changes = changes_of(problem.request(), plan, CutChanges::kAll);
  EXPECT_TRUE(std::any_of(changes.begin(), changes.end(), is_wanted));
}

}  // namespace
}  // namespace motley
