// Every way of cutting a model is the same computation: a grid of plans against one rank.

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/e2e/small_run.h"

namespace motley::testing {
namespace {

using Stage = SmallReplica::Stage;

/// A way to cut a model and to treat its state, by name.
struct Cut {
  std::string name;
  std::vector<SmallReplica> replicas;
  bool shard_optimizer = false;
  bool host_optimizer = false;
  bool tensor_parallel = false;
};

/// Sizes that nothing divides: 8 heads of 5, five layers with embedding and head.
ModelSpec odd_model() {
  return {.type = "gpt", .layers = 3, .heads = 8, .width = 40, .context = 7, .vocab = 259};
}
ModelSpec narrow_model() {
  return {.type = "gpt",
          .layers = 3,
          .heads = 3,
          .width = 9,
          .context = 5,
          .vocab = 263,
          .dropout = 0.1};
}

constexpr int kGrains = 7;
constexpr int kGrain = 3;

SmallReplica alone() { return {.stages = {{.layers = 5}}, .grains = kGrains}; }

/// Recomputation of every layer of every stage.
std::vector<SmallReplica> recomputing(std::vector<SmallReplica> replicas, Recompute part) {
  for (SmallReplica& replica : replicas)
    for (Stage& stage : replica.stages)
      stage.recompute.assign(static_cast<size_t>(stage.layers), part);
  return replicas;
}

/// The forms by themselves and together; `wide`: shares for 8 heads, else for 3.
std::vector<std::pair<std::string, std::vector<SmallReplica>>> forms(bool wide) {
  const std::vector<double> uneven = wide ? std::vector{0.75, 0.25} : std::vector{0.67, 0.33};
  const std::vector<double> three =
      wide ? std::vector{0.5, 0.25, 0.25} : std::vector{0.34, 0.33, 0.33};
  return {
      {"pipeline-3-2", {{.stages = {{3}, {2}}, .grains = 7}}},
      {"pipeline-1-4", {{.stages = {{1}, {4}}, .grains = 7, .micro_batch_grains = 2}}},
      {"pipeline-4-1", {{.stages = {{4}, {1}}, .grains = 7, .micro_batch_grains = 3}}},
      {"pipeline-2-1-2", {{.stages = {{2}, {1}, {2}}, .grains = 7}}},
      {"pipeline-of-five", {{.stages = {{1}, {1}, {1}, {1}, {1}}, .grains = 7}}},
      {"more-stages-than-micro-batches",
       {{.stages = {{1}, {2}, {1}, {1}}, .grains = 7, .micro_batch_grains = 4}}},
      {"accumulation",
       {{.stages = {{5}}, .grains = 4, .micro_batch_grains = 1},
        {.stages = {{5}}, .grains = 3, .micro_batch_grains = 3}}},
      {"unlike-replicas", {{.stages = {{5}}, .grains = 4}, {.stages = {{2}, {3}}, .grains = 3}}},
      {"two-pipelines",
       {{.stages = {{1}, {4}}, .grains = 3},
        {.stages = {{3}, {1}, {1}}, .grains = 4, .micro_batch_grains = 2}}},
      {"three-replicas",
       {{.stages = {{5}}, .grains = 3},
        {.stages = {{4}, {1}}, .grains = 2},
        {.stages = {{5}}, .grains = 2, .micro_batch_grains = 2}}},
      {"tensor-even", {{.stages = {{5, {0.5, 0.5}}}, .grains = 7}}},
      {"tensor-uneven", {{.stages = {{5, uneven}}, .grains = 7, .micro_batch_grains = 2}}},
      {"tensor-three", {{.stages = {{5, three}}, .grains = 7}}},
      {"pipeline-of-tensors", {{.stages = {{2, uneven}, {3, {0.5, 0.5}}}, .grains = 7}}},
      {"wide-then-narrow", {{.stages = {{2, three}, {2}, {1, uneven}}, .grains = 7}}},
      {"everything",
       {{.stages = {{2, uneven}, {3}}, .grains = 4, .micro_batch_grains = 2},
        {.stages = {{5}}, .grains = 1},
        {.stages = {{5, three}}, .grains = 2, .micro_batch_grains = 2}}},
  };
}

bool shares_layers(const std::vector<SmallReplica>& replicas) {
  for (const SmallReplica& replica : replicas)
    for (const Stage& stage : replica.stages)
      if (stage.shares.size() > 1) return true;
  return false;
}

/// Each form alone, then with one treatment of activations and state in turn, then with all.
std::vector<Cut> grid(bool wide) {
  constexpr Recompute kParts[] = {Recompute::kAttention, Recompute::kMlp, Recompute::kBlock};
  std::vector<Cut> cuts;
  size_t number = 0;
  for (const auto& [name, replicas] : forms(wide)) {
    const bool tensor = shares_layers(replicas);
    const Recompute part = kParts[number++ % 3];
    cuts.push_back({.name = name, .replicas = replicas, .tensor_parallel = tensor});
    cuts.push_back({.name = name + "-sharded",
                    .replicas = replicas,
                    .shard_optimizer = true,
                    .host_optimizer = number % 2 == 0,
                    .tensor_parallel = tensor});
    cuts.push_back({.name = name + "-recomputing-" + std::to_string(static_cast<int>(part)),
                    .replicas = recomputing(replicas, part),
                    .shard_optimizer = number % 2 == 0,
                    .host_optimizer = true,
                    .tensor_parallel = tensor});
  }
  return cuts;
}

class Cuts : public ::testing::Test {
 protected:
  /// The loss of every step.
  std::vector<double> losses_of(const SmallRun& run, const std::string& name,
                                std::string* weights = nullptr) {
    Recorder recorder;
    const auto outcome = run_small(small_attempt(run, scratch_.path() + "/" + name), recorder);
    EXPECT_TRUE(outcome) << name << ": " << (outcome ? "" : outcome.error().to_string());
    std::vector<double> losses;
    if (!outcome) return losses;
    for (const auto& [step, report] : recorder.account(0).steps) losses.push_back(report.loss);
    if (weights != nullptr) *weights = outcome->weights_xxh3;
    return losses;
  }

  SmallRun run_of(const Cut& cut, SmallRun base) {
    base.replicas = cut.replicas;
    base.shard_optimizer = cut.shard_optimizer;
    base.host_optimizer = cut.host_optimizer;
    base.grain = kGrain;
    base.samples_missing = 1;
    return base;
  }

  void expect_same_curve(const std::vector<Cut>& cuts, const SmallRun& base, double tolerance) {
    const auto expected =
        losses_of(run_of({.name = "alone", .replicas = {alone()}}, base), "alone");
    ASSERT_EQ(static_cast<int64_t>(expected.size()), base.steps);
    EXPECT_LT(expected.back(), 0.95 * expected.front()) << "nothing was learnt";
    for (const Cut& cut : cuts) {
      const auto losses = losses_of(run_of(cut, base), cut.name);
      ASSERT_EQ(losses.size(), expected.size()) << cut.name;
      for (size_t step = 0; step < losses.size(); ++step)
        ASSERT_NEAR(losses[step], expected[step], tolerance * expected[step])
            << cut.name << " at step " << step + 1;
    }
  }

  ScratchDirectory scratch_;
};

TEST_F(Cuts, FastFollowsOneRank) {
  expect_same_curve(grid(true), {.model = odd_model(), .steps = 100}, 1e-4);
}

/// The shape others publish figures for, with narrower layers: 24 of them, 2 stages of 2 ranks.
TEST_F(Cuts, TwentyFourLayersOnTwoStagesOfTwoFollowOneRank) {
  const ModelSpec model{
      .type = "gpt", .layers = 24, .heads = 4, .width = 32, .context = 8, .vocab = 256};
  // The rate of models this deep: at higher ones rounding alone grows beyond the tolerance.
  const SmallRun base{.model = model, .lr = 3e-4, .steps = 100};
  SmallReplica whole = alone();
  whole.stages = {{.layers = 26}};
  const SmallReplica cut{.stages = {{13, {0.5, 0.5}}, {13, {0.5, 0.5}}}, .grains = kGrains};
  const auto expected = losses_of(run_of({.name = "alone", .replicas = {whole}}, base), "alone");
  const auto losses = losses_of(run_of({.name = "cut", .replicas = {cut}}, base), "cut");
  ASSERT_EQ(losses.size(), expected.size());
  for (size_t step = 0; step < losses.size(); ++step)
    ASSERT_NEAR(losses[step], expected[step], 1e-4 * expected[step]) << "step " << step + 1;
}

TEST_F(Cuts, Float64FollowsOneRankClosely) {
  expect_same_curve(grid(false),
                    {.precision = Precision::kFp64, .model = narrow_model(), .steps = 30}, 1e-10);
}

TEST_F(Cuts, ExactGivesTheSameBits) {
  ModelSpec model = odd_model();
  model.dropout = 0.1;
  const SmallRun base{.numerics = Numerics::kExact,
                      .model = model,
                      .steps = 10,
                      .eval = {.every = 0, .samples = 11}};
  std::string expected;
  losses_of(run_of({.name = "alone", .replicas = {alone()}}, base), "alone", &expected);
  for (Cut& cut : grid(true)) {
    if (cut.tensor_parallel) continue;
    for (SmallReplica& replica : cut.replicas) replica.micro_batch_grains = 1;
    std::string weights;
    losses_of(run_of(cut, base), cut.name, &weights);
    EXPECT_EQ(weights, expected) << cut.name;
  }
}

}  // namespace
}  // namespace motley::testing
