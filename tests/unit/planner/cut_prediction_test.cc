// Predictions of plans that are cut, from made-up layer curves: each part by hand.

#include <gtest/gtest.h>

#include <random>

#include "core/holdings.h"
#include "core/plan_completion.h"
#include "planner/costs/cost_model.h"
#include "planner/costs/held_elements.h"
#include "planner/costs/layer_times.h"
#include "planner/costs/slice_traffic.h"
#include "tests/support/planning_case.h"

namespace motley {
namespace {

using testing::PlanningCase;

/// A layer that takes this much a sample, a quarter of it forward.
LayerCurve layer_curve(const std::string& layer, double per_sample, double share = 1,
                       Recompute recompute = Recompute::kNone) {
  LayerCurve curve;
  curve.layer = layer;
  curve.share = share;
  curve.recompute = recompute;
  for (const int size : {1, 2, 4, 8})
    curve.points.push_back({size, per_sample * size, 0.01, 5, 0.25 * per_sample * size});
  curve.fit = fit_curve(curve.points);
  return curve;
}

/// Devices whose layers are known, of which none holds the model: embedding 1 ms, each of two
/// blocks 4 ms, head 2 ms a sample.
PlanningCase cut_case(int devices) {
  PlanningCase problem(8);
  problem.job.model = {"gpt", 2, 4, 8, 16, 32};
  for (int i = 0; i < devices; ++i) {
    problem.add({.step_overhead = 0.0001, .update = 0.001});
    DeviceProfile& device = problem.profile.devices.back();
    device.curves = {layer_curve("embedding", 0.001), layer_curve("block", 0.004),
                     layer_curve("head", 0.002)};
    for (const auto& [layer, seconds] :
         {std::pair("embedding", 0.001), std::pair("block", 0.004), std::pair("head", 0.002)})
      for (const double share : {0.25, 0.75})
        device.curves.push_back(layer_curve(layer, seconds * share, share));
    LayerCurve again = layer_curve("block", 0.005, 1, Recompute::kBlock);
    for (CurvePoint& point : again.points) point.forward_seconds = 0.001 * point.micro_batch;
    device.curves.push_back(again);
  }
  return problem;
}

Plan plan_of(const PlanningCase& problem, std::vector<ReplicaPlan> replicas, bool sharded = false) {
  Plan plan;
  plan.global_batch = problem.job.train.global_batch;
  plan.grain = problem.job.train.grain.value_or(1);
  plan.numerics = problem.job.train.numerics;
  for (const DeviceSpec& device : problem.fleet.devices)
    plan.ranks.push_back({device.id, device.host, device.type});
  plan.replicas = std::move(replicas);
  plan.shard_optimizer = sharded;
  const auto completed = complete(problem.job, problem.fleet, &plan);
  EXPECT_TRUE(completed) << completed.error().to_string();
  const auto predicted = predict(problem.request(), &plan);
  EXPECT_TRUE(predicted) << predicted.error().to_string();
  return plan;
}

StagePlan stage(LayerIndex first, LayerIndex last, std::vector<int> ranks,
                std::vector<double> shares = {1.0}) {
  StagePlan stage;
  stage.first_layer = first;
  stage.last_layer = last;
  for (const int rank : ranks) stage.ranks.emplace_back(rank);
  stage.shares = std::move(shares);
  return stage;
}

TEST(HeldElements, AreThoseOfAllHoldings) {
  ModelSpec model = cut_case(1).job.model;
  model.layers = 4;
  HeldElements held(model);
  for (LayerIndex first = 0; first < layer_count(model); ++first)
    for (LayerIndex last = first; last < layer_count(model); ++last)
      for (const std::vector<double>& shares : {std::vector{1.0}, {0.25, 0.75}, {0.5, 0.25, 0.25}})
        for (int member = 0; member < std::ssize(shares); ++member) {
          const StagePlan own = stage(first, last, {0, 1, 2}, shares);
          int64_t elements = 0;
          for (const Holding& holding : holdings_of(model, own, member))
            elements += holding.slice.elements();
          EXPECT_EQ(held.of(own, member), elements) << first << " to " << last;
        }
}

TEST(CutPrediction, OfWhatComputesLongEnoughSaysNoMore) {
  PlanningCase problem = cut_case(4);
  problem.add_link("localhost", "localhost", 0.001, 1e6);
  for (const bool sharded : {false, true}) {
    const Plan plan = plan_of(problem,
                              {{{stage(0, 1, {0}), stage(2, 3, {1})}, 1, 4},
                               {{stage(0, 1, {2}), stage(2, 3, {3})}, 1, 4}},
                              sharded);
    Plan bare = plan;
    bare.owners.clear();
    Plan quick = bare;
    const double step = plan.prediction.step_seconds;
    const double computing = step - plan.prediction.communication_seconds;
    ASSERT_LT(computing, 0.9 * step);
    ASSERT_TRUE(predict_step(problem.request(), &bare, 1.001 * computing));
    EXPECT_EQ(bare.prediction.step_seconds, step);
    ASSERT_TRUE(predict_step(problem.request(), &quick, 0.999 * computing));
    EXPECT_NEAR(quick.prediction.step_seconds, computing, 1e-9);
  }
}

TEST(CutPrediction, OfAPipelineIsItsSimulation) {
  const PlanningCase problem = cut_case(2);
  const Plan plan = plan_of(problem, {{{stage(0, 1, {0}), stage(2, 3, {1})}, 1, 8}});
  const Prediction& predicted = plan.prediction;
  // 5 ms and 6 ms of work a micro-batch. Sections begin with the first stage's first two forward
  // passes and all its backward passes, and with the last stage's forward passes.
  EXPECT_NEAR(predicted.ranks[0].compute_seconds, 8 * 0.005 + (2 + 8) * 0.0001, 1e-9);
  EXPECT_NEAR(predicted.ranks[1].compute_seconds, 8 * 0.006 + 8 * 0.0001, 1e-9);
  EXPECT_EQ(predicted.slowest()->rank, Rank(1));
  // The first forward pass comes before anything of the last stage, a backward pass after.
  EXPECT_GT(predicted.bubble_seconds, 0.004);
  EXPECT_LT(predicted.bubble_seconds, 0.007);
  EXPECT_NEAR(predicted.step_seconds,
              predicted.compute_seconds + predicted.update_seconds + predicted.bubble_seconds,
              1e-12);
  for (const RankPrediction& rank : predicted.ranks)
    EXPECT_NEAR(rank.compute_seconds + rank.update_seconds + rank.wait_seconds,
                predicted.step_seconds - predicted.communication_seconds, 1e-9);
}

TEST(CutPrediction, UncertaintyWeighsLayersByTheirTime) {
  PlanningCase problem = cut_case(2);
  for (DeviceProfile& device : problem.profile.devices)
    for (LayerCurve& curve : device.curves)
      for (CurvePoint& point : curve.points) point.spread = curve.layer == "block" ? 0.1 : 0;
  const Plan plan = plan_of(problem, {{{stage(0, 1, {0}), stage(2, 3, {1})}, 1, 8}});
  // The first stage: 1 ms of embedding and 4 ms of a block; the second is less uncertain.
  EXPECT_NEAR(plan.prediction.uncertainty, 0.1 * 4 / 5, 1e-9);
}

TEST(CutPrediction, SoloSpeedOfWhoCannotHoldTheModelIsSummedOverLayers) {
  const PlanningCase problem = cut_case(2);
  const Plan plan = plan_of(problem, {{{stage(0, 1, {0}), stage(2, 3, {1})}, 1, 8}});
  EXPECT_NEAR(plan.prediction.ranks[0].solo_samples_per_second, 8 / (8 * 0.011 + 0.0001 + 0.001),
              1e-6);
}

/// Devices that hold the model up to micro-batch 2, in an exact job whose grain is 4.
PlanningCase coarse_case(int devices) {
  PlanningCase problem = cut_case(devices);
  problem.job.train.numerics = Numerics::kExact;
  problem.job.train.grain = 4;
  for (DeviceProfile& device : problem.profile.devices) {
    LayerCurve whole = layer_curve("model", 0.022);  // twice what its layers take by themselves
    whole.points.resize(2);
    device.curves.push_back(whole);
    for (MemoryPoint& point : device.memory)
      if (point.micro_batch > 2) point.fixed = device.memory_limit;
  }
  return problem;
}

ReplicaPlan coarse_pipeline() { return {{stage(0, 1, {0}), stage(2, 3, {1})}, 4, 2}; }

TEST(CutPrediction, SoloSpeedOfWhoHoldsTheModelAtNoAllowedMicroBatchIsSummedOverLayers) {
  const PlanningCase problem = coarse_case(2);
  const Prediction predicted = plan_of(problem, {coarse_pipeline()}).prediction;
  const double alone = 8 / (8 * 0.022 + 0.0001 + 0.001);
  for (const RankPrediction& rank : predicted.ranks)
    EXPECT_NEAR(rank.solo_samples_per_second, alone, 1e-6);
  EXPECT_NEAR(predicted.solo_sum_samples_per_second, 2 * alone, 1e-6);
  EXPECT_GT(predicted.integer_bound_efficiency, 0.9);
  EXPECT_LE(predicted.integer_bound_efficiency, 1);
}

TEST(CutPrediction, ASumWithADeviceOfUnknownSpeedIsUnknown) {
  PlanningCase problem = coarse_case(2);
  for (LayerCurve& curve : problem.profile.devices[1].curves) curve.points.resize(2);
  const Prediction predicted = plan_of(problem, {coarse_pipeline()}).prediction;
  EXPECT_GT(predicted.ranks[0].solo_samples_per_second, 0);
  EXPECT_EQ(predicted.ranks[1].solo_samples_per_second, 0);
  EXPECT_EQ(predicted.solo_sum_samples_per_second, 0);
  EXPECT_EQ(predicted.integer_bound_efficiency, 0);
}

TEST(CutPrediction, HeadroomThatLeavesNoMicroBatchIsNoSpeedOfZero) {
  PlanningCase problem = cut_case(2);
  for (DeviceProfile& device : problem.profile.devices) {
    device.curves.push_back(layer_curve("model", 0.011));
    for (MemoryPoint& point : device.memory) point.fixed = device.memory_limit;
  }
  const Plan plan = plan_of(problem, {{{stage(0, 1, {0}), stage(2, 3, {1})}, 1, 8}});
  EXPECT_NEAR(plan.prediction.solo_sum_samples_per_second, 2 * 8 / (8 * 0.011 + 0.0001 + 0.001),
              1e-6);
}

TEST(CutPrediction, RanksThatShareAStageWaitForTheSlower) {
  const PlanningCase problem = cut_case(2);
  const Plan plan = plan_of(problem, {{{stage(0, 3, {0, 1}, {0.25, 0.75})}, 2, 8}});
  EXPECT_NEAR(plan.prediction.ranks[0].compute_seconds, 0.25 * 8 * 0.011 + 0.0001, 1e-6);
  EXPECT_NEAR(plan.prediction.ranks[1].compute_seconds, 0.75 * 8 * 0.011 + 0.0001, 1e-6);
  EXPECT_NEAR(plan.prediction.ranks[0].wait_seconds, 0.5 * 8 * 0.011, 0.001);
  EXPECT_LT(plan.prediction.ranks[0].update_seconds, plan.prediction.ranks[1].update_seconds);
}

TEST(CutPrediction, RecomputingCostsAForwardPass) {
  const PlanningCase problem = cut_case(1);
  StagePlan whole = stage(0, 3, {0});
  const double kept = plan_of(problem, {{{whole}, 1, 8}}).prediction.compute_seconds;
  whole.recompute.assign(4, Recompute::kBlock);
  const double again = plan_of(problem, {{{whole}, 1, 8}}).prediction.compute_seconds;
  EXPECT_NEAR(again - kept, 8 * 2 * 0.001, 1e-9);
}

TEST(CutPrediction, ShardedStateIsUpdatedInPartsByAllTogether) {
  const PlanningCase problem = cut_case(2);
  const std::vector<ReplicaPlan> replicas{{{stage(0, 3, {0})}, 1, 4}, {{stage(0, 3, {1})}, 1, 4}};
  const Plan whole = plan_of(problem, replicas);
  const Plan sharded = plan_of(problem, replicas, true);
  EXPECT_DOUBLE_EQ(whole.prediction.update_seconds, 0.001);
  EXPECT_NEAR(sharded.prediction.update_seconds, 0.0005, 0.00005);
}

TEST(CutPrediction, OfALayerNobodyMeasuredIsRefused) {
  PlanningCase problem = cut_case(1);
  StagePlan whole = stage(0, 3, {0});
  whole.recompute.assign(4, Recompute::kAttention);
  Plan plan = plan_of(problem, {{{stage(0, 3, {0})}, 1, 8}});
  plan.replicas[0].stages[0] = whole;
  const auto predicted = predict(problem.request(), &plan);
  ASSERT_FALSE(predicted);
  EXPECT_EQ(predicted.error().message,
            "/replicas/0/stages/0: the profile of localhost/0 (card) has no curve of a block with "
            "recompute attention, which the plan needs: it was not measured (see `motley profile "
            "--refresh`), or is too large for the device");
}

TEST(SliceTraffic, OfEqualReplicasIsThatOfARing) {
  PlanningCase problem = cut_case(4);
  std::vector<ReplicaPlan> replicas;
  for (int rank = 0; rank < 4; ++rank) replicas.push_back({{stage(0, 3, {rank})}, 1, 2});
  const Plan plan = plan_of(problem, replicas);
  const auto elements = static_cast<double>(parameter_count(problem.job.model));
  for (const SliceTraffic& rank : slice_traffic(plan, problem.job.model).ranks) {
    EXPECT_EQ(rank.peers.size(), 4U);
    EXPECT_EQ(static_cast<double>(rank.held), elements);
    EXPECT_NEAR(static_cast<double>(rank.sent) / (2.0 * 3 / 4 * elements), 1, 0.2);
  }
}

TEST(SliceTraffic, StagesShareNothingButTiedTensors) {
  PlanningCase problem = cut_case(3);
  const Plan plan =
      plan_of(problem, {{{stage(0, 0, {0}), stage(1, 2, {1}), stage(3, 3, {2})}, 1, 8}});
  const auto traffic = slice_traffic(plan, problem.job.model).ranks;
  EXPECT_EQ(traffic[0].peers, (std::vector<Rank>{Rank(0), Rank(2)}));
  EXPECT_EQ(traffic[1].peers, std::vector<Rank>{Rank(1)});
  EXPECT_EQ(traffic[1].sent, 0);
  // The token embedding: half of its gradient there, the other half back, and the same of results.
  const int64_t tied = 32 * 8;
  EXPECT_EQ(traffic[0].sent, tied);
  EXPECT_EQ(traffic[0].received, tied);
}

/// Of up to seven layers, from rank `first` on, which it moves on; where `shared`, each on two.
ReplicaPlan random_replica(std::mt19937& random, int layers, bool shared, int* first) {
  ReplicaPlan replica{{}, 1, 2};
  for (int begin = 0, end = 0; begin < layers; begin = end) {
    end = begin + std::uniform_int_distribution(1, layers - begin)(random);
    replica.stages.push_back(stage(begin, end - 1, {(*first)++}));
    if (!shared) continue;
    replica.stages.back().ranks.emplace_back((*first)++);
    replica.stages.back().shares = {1, 3};
  }
  return replica;
}

TEST(SliceTraffic, OfNoOwnersIsThatOfEvenOnes) {
  std::mt19937 random(20261201);
  for (int i = 0; i < 300; ++i) {
    const bool shared = i % 5 == 0;
    Plan plan;
    const ModelSpec model{"gpt", std::uniform_int_distribution(1, 5)(random), 4, 8, 16, 37};
    int ranks = 0;
    for (int replicas = std::uniform_int_distribution(1, 5)(random); replicas > 0; --replicas)
      plan.replicas.push_back(random_replica(random, layer_count(model), shared, &ranks));
    for (int rank = 0; rank < ranks; ++rank)
      plan.ranks.push_back({"", std::string(1, "abc"[random() % 3]), "any"});
    plan.shard_optimizer = i % 2 == 0;
    Plan owned = plan;
    owned.owners = even_ownership(plan, model);
    EXPECT_EQ(slice_traffic(plan, model), slice_traffic(owned, model)) << i;
  }
}

/// Two hosts of two devices each.
PlanningCase two_hosts(double bytes_per_second) {
  PlanningCase problem = cut_case(4);
  for (size_t i = 0; i < 4; ++i) problem.fleet.devices[i].host = i < 2 ? "a" : "b";
  for (const auto& [one, other] : {std::pair("a", "a"), std::pair("b", "b")})
    problem.add_link(one, other, 0, 1e12);
  problem.add_link("a", "b", 0, bytes_per_second);
  return problem;
}

/// Of gradients of all elements.
double seconds_over(double bytes_per_second, const PlanningCase& problem) {
  return 4.0 * static_cast<double>(parameter_count(problem.job.model)) / bytes_per_second;
}

TEST(SliceTraffic, AHostSendsWhatItsRanksHaveInCommonOnce) {
  for (const bool sharded : {false, true}) {
    const PlanningCase problem = two_hosts(1e6);
    const auto elements = static_cast<double>(parameter_count(problem.job.model));
    // All ranks hold everything; two stages on each host; stages of both replicas on a host.
    const std::vector<ReplicaPlan> whole{{{stage(0, 3, {0})}, 1, 2},
                                         {{stage(0, 3, {1})}, 1, 2},
                                         {{stage(0, 3, {2})}, 1, 2},
                                         {{stage(0, 3, {3})}, 1, 2}};
    const std::vector<ReplicaPlan> within{{{stage(0, 1, {0}), stage(2, 3, {1})}, 1, 4},
                                          {{stage(0, 1, {2}), stage(2, 3, {3})}, 1, 4}};
    for (const auto& replicas : {whole, within}) {
      const Plan plan = plan_of(problem, replicas, sharded);
      for (const HostTraffic& host : slice_traffic(plan, problem.job.model).hosts) {
        EXPECT_EQ(host.peers.size(), 4U);
        EXPECT_NEAR(host.elements() / elements, 1, sharded ? 0.1 : 1e-12);
      }
    }
    const Plan over = plan_of(problem,
                              {{{stage(0, 1, {0}), stage(2, 3, {2})}, 1, 4},
                               {{stage(0, 1, {1}), stage(2, 3, {3})}, 1, 4}},
                              sharded);
    // Only the token embedding is on both.
    for (const HostTraffic& host : slice_traffic(over, problem.job.model).hosts)
      EXPECT_NEAR(host.elements(), 32 * 8, sharded ? 32 * 8 : 1e-9);
  }
}

/// The last layers of the second replica are on a host that is far from the others.
TEST(CutPrediction, AFarHostSlowsWhatIsExchangedWithItAlone) {
  constexpr double kSlow = 1e5;
  PlanningCase problem = cut_case(3);
  for (size_t i = 0; i < 3; ++i) problem.fleet.devices[i].host = std::string(1, "abc"[i]);
  problem.add_link("a", "b", 0, 1e12).add_link("a", "c", 0, kSlow).add_link("b", "c", 0, kSlow);
  const Plan plan =
      plan_of(problem, {{{stage(0, 3, {0})}, 1, 4}, {{stage(0, 1, {1}), stage(2, 3, {2})}, 1, 4}});
  double crossing = 0;
  for (const LogicalTensor& tensor : logical_tensors(problem.job.model, 2, 3))
    crossing += static_cast<double>(tensor.elements());
  const double seconds = crossing / static_cast<double>(parameter_count(problem.job.model)) *
                         seconds_over(kSlow, problem);
  EXPECT_GE(plan.prediction.communication_seconds, seconds);
  // Of what is tied a third holder has a part, too.
  EXPECT_LE(plan.prediction.communication_seconds, 1.4 * seconds);
  EXPECT_LT(1.4 * seconds, seconds_over(kSlow, problem));
}

TEST(CutPrediction, StagesOfAHostShareItsLink) {
  constexpr double kSlow = 1e5;
  const PlanningCase problem = two_hosts(kSlow);
  const Plan within = plan_of(problem, {{{stage(0, 1, {0}), stage(2, 3, {1})}, 1, 4},
                                        {{stage(0, 1, {2}), stage(2, 3, {3})}, 1, 4}});
  // Each host sends its half of the sums and what is left of its gradients.
  EXPECT_NEAR(within.prediction.communication_seconds / seconds_over(kSlow, problem), 1, 1e-9);
}

TEST(CutPrediction, IsNoQuickerThanItsActivationsCrossLinks) {
  constexpr double kSlow = 1e5;
  const PlanningCase problem = two_hosts(kSlow);
  const Plan over = plan_of(problem, {{{stage(0, 1, {0}), stage(2, 3, {2})}, 1, 4},
                                      {{stage(0, 1, {1}), stage(2, 3, {3})}, 1, 4}});
  // Of all 8 samples the activations one way, their gradients the other.
  const double bytes = 8.0 * problem.job.model.context * problem.job.model.width * 4;
  const double computed = over.prediction.step_seconds - over.prediction.communication_seconds;
  EXPECT_GE(computed, bytes / kSlow);
}

/// What was measured of four ranks on two hosts is what two hosts take.
TEST(CutPrediction, HostsTakeWhatWasMeasuredOfThem) {
  PlanningCase problem = two_hosts(1e5);
  const double all = seconds_over(1e5, problem);
  problem.add_reduction(4, 1.2 * all, {"a", "b"});
  const Plan within = plan_of(problem, {{{stage(0, 1, {0}), stage(2, 3, {1})}, 1, 4},
                                        {{stage(0, 1, {2}), stage(2, 3, {3})}, 1, 4}});
  EXPECT_NEAR(within.prediction.communication_seconds / (1.2 * all), 1, 1e-9);
}

}  // namespace
}  // namespace motley
