// Every way of cutting a model is the same computation: a grid of plans against one rank.

#include <gtest/gtest.h>

#include <cmath>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "core/holdings.h"
#include "core/spec/names.h"
#include "tests/e2e/small_run.h"

namespace motley::testing {
namespace {

using Stage = SmallReplica::Stage;

/// A way to cut a model and to treat its state, by name.
struct Cut {
  std::string name;
  std::vector<SmallReplica> replicas;
  bool shard_optimizer = false;
  std::vector<bool> host_optimizer = {};  ///< of the ranks in turn; empty: none
  unsigned random_owners = 0;             ///< a seed; 0: even owners
  bool tensor_parallel = false;
  size_t shape = 0;
  int threads = 1;
};

/// A model and a batch.
struct Shape {
  ModelSpec model;
  int grain = 0;
  int samples_missing = 0;
};

/// Sizes that nothing divides, batches of 20, 19 and 13 samples. A cut's last stage gets the layers
/// beyond the five of the first shape (embedding and head are two).
std::vector<Shape> odd_shapes() {
  return {
      {{.type = "gpt", .layers = 3, .heads = 8, .width = 40, .context = 7, .vocab = 259}, 3, 1},
      {{.type = "gpt", .layers = 3, .heads = 5, .width = 35, .context = 11, .vocab = 263}, 3, 2},
      {{.type = "gpt", .layers = 5, .heads = 7, .width = 21, .context = 13, .vocab = 269}, 2, 1}};
}
std::vector<Shape> narrow_shapes() {
  std::vector<Shape> shapes = {
      {{.type = "gpt", .layers = 3, .heads = 3, .width = 9, .context = 5, .vocab = 263}, 3, 1},
      {{.type = "gpt", .layers = 4, .heads = 5, .width = 10, .context = 3, .vocab = 257}, 3, 2},
      {{.type = "gpt", .layers = 3, .heads = 7, .width = 7, .context = 5, .vocab = 269}, 2, 1}};
  for (Shape& shape : shapes) shape.model.dropout = 0.1;
  return shapes;
}

constexpr int kGrains = 7;

SmallRun steps(int64_t count) {
  SmallRun run;
  run.steps = count;
  return run;
}

Cut alone() { return {.name = "alone", .replicas = {{.stages = {{5}}, .grains = kGrains}}}; }

/// Layers of every stage recompute `parts` in turn, from the `from`-th on.
std::vector<SmallReplica> recomputing(std::vector<SmallReplica> replicas,
                                      const std::vector<Recompute>& parts, size_t from = 0) {
  for (SmallReplica& replica : replicas)
    for (Stage& stage : replica.stages)
      for (int layer = 0; layer < stage.layers; ++layer)
        stage.recompute.push_back(parts[from++ % parts.size()]);
  return replicas;
}

const std::vector<Recompute> kAllParts = {Recompute::kBlock, Recompute::kNone, Recompute::kMlp,
                                          Recompute::kAttention};

/// The last stages with as many layers more as the model has.
std::vector<SmallReplica> deepened(std::vector<SmallReplica> replicas, int layers) {
  for (SmallReplica& replica : replicas) {
    int more = layers;
    for (const Stage& stage : replica.stages) more -= stage.layers;
    Stage& last = replica.stages.back();
    last.layers += more;
    if (!last.recompute.empty())
      last.recompute.insert(last.recompute.end(), static_cast<size_t>(more), last.recompute[0]);
  }
  return replicas;
}

/// Cuts a box in two at random, along any dimension, some times.
std::vector<Slice> random_pieces(const Slice& box, std::mt19937& random) {
  std::vector<Slice> pieces = {box};
  for (auto cuts = random() % 4; cuts > 0; --cuts) {
    Slice& piece = pieces[random() % pieces.size()];
    const size_t dimension = random() % piece.extent.size();
    if (piece.extent[dimension] < 2) continue;
    Slice rest = piece;
    const auto cut = 1 + static_cast<int64_t>(random()) % (piece.extent[dimension] - 1);
    piece.extent[dimension] = cut;
    rest.start[dimension] += cut;
    rest.extent[dimension] -= cut;
    pieces.push_back(rest);
  }
  return pieces;
}

/// Pieces of the even owners' boxes, each owned by any of the ranks that hold it.
std::vector<Ownership> random_ownership(const Plan& plan, const ModelSpec& model, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::vector<Holding>> holdings;
  for (int rank = 0; rank < plan.world_size(); ++rank) {
    const Role role = role_of(plan, Rank(rank));
    holdings.push_back(holdings_of(model, stage_of(plan, role), role.member));
  }
  std::vector<Ownership> owners;
  for (const Ownership& even : even_ownership(plan, model)) {
    std::vector<Rank> holders;
    for (int rank = 0; rank < plan.world_size(); ++rank)
      for (const Holding& holding : holdings[static_cast<size_t>(rank)])
        if (holding.tensor.name == even.tensor && contains(holding.slice, even.slice))
          holders.emplace_back(rank);
    for (const Slice& piece : random_pieces(even.slice, random))
      owners.push_back({even.tensor, piece, holders[random() % holders.size()]});
  }
  return owners;
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

/// Each form alone, then with treatments of activations and state: shards owned at random, some of
/// them in host memory; recomputing, now one part, now each layer another. Shapes in turn.
std::vector<Cut> treated(
    const std::vector<std::pair<std::string, std::vector<SmallReplica>>>& forms) {
  const std::vector<std::vector<Recompute>> parts = {
      {Recompute::kAttention}, {Recompute::kMlp}, {Recompute::kBlock}, kAllParts};
  std::vector<Cut> cuts;
  unsigned number = 0;
  for (const auto& [name, replicas] : forms) {
    const bool tensor = shares_layers(replicas);
    const bool even = number % 2 == 0;
    cuts.push_back({.name = name,
                    .replicas = replicas,
                    .random_owners = even ? 0 : 100 + number,
                    .tensor_parallel = tensor,
                    .shape = number % 3});
    cuts.push_back({.name = name + "-sharded",
                    .replicas = replicas,
                    .shard_optimizer = true,
                    .host_optimizer = {even, !even, !even},
                    .random_owners = 1 + number,
                    .tensor_parallel = tensor,
                    .shape = (number + 1) % 3});
    cuts.push_back({.name = name + "-recomputing",
                    .replicas = recomputing(replicas, parts[number % parts.size()], number / 4),
                    .shard_optimizer = !even,
                    .host_optimizer = {true},
                    .tensor_parallel = tensor,
                    .shape = (number + 2) % 3});
    ++number;
  }
  return cuts;
}

std::vector<Cut> grid(bool wide) { return treated(forms(wide)); }

/// What a training came to.
struct Trained {
  std::vector<double> losses;     ///< of every step
  std::vector<double> evaluated;  ///< held-out losses
  std::string weights;
};

class Cuts : public ::testing::Test {
 protected:
  std::string directory_of(const Cut& cut) {
    return scratch_.path() + "/" + apart_ + cut.name + "." + std::to_string(cut.shape);
  }

  Attempt attempt_of(const Cut& cut, const Shape& shape, SmallRun run, const std::string& directory,
                     Epoch epoch = Epoch(1)) {
    run.model = shape.model;
    run.grain = shape.grain;
    run.samples_missing = shape.samples_missing;
    run.replicas = deepened(cut.replicas, layer_count(shape.model));
    run.shard_optimizer = cut.shard_optimizer;
    Attempt attempt = small_attempt(run, directory, epoch);
    Plan& plan = attempt.plan;
    for (size_t rank = 0; rank < plan.ranks.size(); ++rank) {
      attempt.fleet.devices[rank].threads = cut.threads;
      if (!cut.host_optimizer.empty())
        plan.ranks[rank].host_optimizer = cut.host_optimizer[rank % cut.host_optimizer.size()];
    }
    if (cut.random_owners != 0)
      plan.owners = random_ownership(plan, shape.model, cut.random_owners);
    const auto valid = validate(plan, shape.model);
    EXPECT_TRUE(valid) << cut.name << ": " << valid.error().message;
    return attempt;
  }

  Trained train(const Attempt& attempt, const AtStep& at_step = nullptr) {
    Recorder recorder;
    const auto outcome = run_small(attempt, recorder, at_step);
    EXPECT_TRUE(outcome) << attempt.run_dir << ": " << (outcome ? "" : outcome.error().to_string());
    Trained trained;
    if (!outcome) return trained;
    for (const auto& [step, report] : recorder.account(0).steps)
      trained.losses.push_back(report.loss);
    for (const EvaluatedReport& report : recorder.account(0).evaluated)
      trained.evaluated.push_back(report.loss);
    trained.weights = outcome->weights_xxh3;
    return trained;
  }
  Trained train(const Cut& cut, const Shape& shape, const SmallRun& base) {
    return train(attempt_of(cut, shape, base, directory_of(cut)));
  }

  /// Each shape on one rank.
  std::vector<Trained> on_one_rank(const std::vector<Shape>& shapes, const SmallRun& base) {
    std::vector<Trained> trained;
    for (size_t i = 0; i < shapes.size(); ++i) {
      Cut whole = alone();
      whole.shape = i;
      trained.push_back(train(whole, shapes[i], base));
    }
    return trained;
  }

  void expect_same_curve(const std::vector<Cut>& cuts, const std::vector<Shape>& shapes,
                         const SmallRun& base, double tolerance) {
    const std::vector<Trained> whole = on_one_rank(shapes, base);
    for (const Trained& trained : whole) {
      ASSERT_EQ(static_cast<int64_t>(trained.losses.size()), base.steps);
      EXPECT_LT(trained.losses.back(), 0.95 * trained.losses.front()) << "nothing was learnt";
    }
    for (const Cut& cut : cuts) {
      const auto& expected = whole[cut.shape].losses;
      const auto losses = train(cut, shapes[cut.shape], base).losses;
      ASSERT_EQ(losses.size(), expected.size()) << cut.name;
      for (size_t step = 0; step < losses.size(); ++step)
        ASSERT_NEAR(losses[step], expected[step], tolerance * expected[step])
            << cut.name << " at step " << step + 1;
    }
  }

  TemporaryDirectory scratch_;
  std::string apart_;  ///< keeps runs of one cut apart
};

TEST_F(Cuts, FastFollowsOneRank) { expect_same_curve(grid(true), odd_shapes(), steps(100), 1e-4); }

/// Embedding and head divide the vocabulary alone: more ranks may share them than there are heads.
TEST_F(Cuts, EndsSharedByMoreRanksThanThereAreHeadsFollowOneRank) {
  std::vector<Shape> shapes = odd_shapes();
  for (Shape& shape : shapes) shape.model.heads = 2, shape.model.width = 20, shape.model.layers = 3;
  const Stage head{1, {0.5, 0.3, 0.2}};
  const std::vector<Cut> cuts = treated(
      {{"head-of-three", {{.stages = {{4}, head}, .grains = 7}}},
       {"embedding-of-three", {{.stages = {head, {4}}, .grains = 7, .micro_batch_grains = 2}}},
       {"both-ends-and-a-whole",
        {{.stages = {head, {3, {0.5, 0.5}}, head}, .grains = 4}, {.stages = {{5}}, .grains = 3}}}});
  expect_same_curve(cuts, shapes, steps(100), 1e-4);
}

/// The shape others publish figures for, with narrower layers: 24 of them, 2 stages of 2 ranks.
TEST_F(Cuts, TwentyFourLayersOnTwoStagesOfTwoFollowOneRank) {
  const ModelSpec model{
      .type = "gpt", .layers = 24, .heads = 4, .width = 32, .context = 8, .vocab = 256};
  // The rate of models this deep: at higher ones rounding alone grows beyond the tolerance.
  SmallRun base = steps(100);
  base.lr = 3e-4;
  const Shape shape{model, 3, 1};
  const Cut cut{.name = "cut",
                .replicas = {{.stages = {{13, {0.5, 0.5}}, {13, {0.5, 0.5}}}, .grains = kGrains}}};
  const auto expected = train(alone(), shape, base).losses;
  ASSERT_EQ(static_cast<int64_t>(expected.size()), base.steps);
  EXPECT_LT(expected.back(), 0.95 * expected.front()) << "nothing was learnt";
  const auto losses = train(cut, shape, base).losses;
  ASSERT_EQ(losses.size(), expected.size());
  for (size_t step = 0; step < losses.size(); ++step)
    ASSERT_NEAR(losses[step], expected[step], 1e-4 * expected[step]) << "step " << step + 1;
}

TEST_F(Cuts, Float64FollowsOneRankClosely) {
  SmallRun base = steps(100);
  base.precision = Precision::kFp64;
  expect_same_curve(grid(false), narrow_shapes(), base, 1e-10);
}

/// Stages in bf16, fp16 and fp32 in turn, in one pipeline and side by side. The tolerance is what
/// 8 bits of bf16 allow after 20 steps.
TEST_F(Cuts, ReducedPrecisionsFollowOneRankInTheFullOne) {
  constexpr Precision kInTurn[] = {Precision::kBf16, Precision::kFp16, Precision::kFp32};
  std::vector<Cut> cuts = grid(true);
  size_t turn = 0;
  for (Cut& cut : cuts)
    for (SmallReplica& replica : cut.replicas)
      for (Stage& stage : replica.stages) stage.precision = kInTurn[turn++ % std::size(kInTurn)];
  expect_same_curve(cuts, odd_shapes(), steps(20), 2e-2);
}

/// With shapes whose products are taken in 8 bits; stages beside them in bf16 and fp32.
TEST_F(Cuts, Fp8BesideOthersFollowsOneRankInTheFullPrecision) {
  const Shape shape{
      {.type = "gpt", .layers = 3, .heads = 4, .width = 64, .context = 16, .vocab = 259}, 3, 1};
  const Stage fp8{3, {1.0}, {}, Precision::kFp8}, bf16{2, {1.0}, {}, Precision::kBf16};
  const Stage shared{3, {0.5, 0.5}, {}, Precision::kFp8}, fp32{5, {1.0}, {}, Precision::kFp32};
  const std::vector<Cut> cuts = {
      {.name = "in-a-pipeline", .replicas = {{.stages = {fp8, bf16}, .grains = kGrains}}},
      {.name = "shared", .replicas = {{.stages = {bf16, shared}, .grains = kGrains}}},
      {.name = "side-by-side",
       .replicas = {{.stages = {bf16, fp8}, .grains = 4}, {.stages = {fp32}, .grains = 3}}}};
  expect_same_curve(cuts, {shape}, steps(20), 5e-2);
}

TEST_F(Cuts, RecomputingGivesTheSameBitsInFast) {
  const SmallRun base = steps(4);
  std::vector<Shape> shapes = odd_shapes();
  for (Shape& shape : shapes) shape.model.dropout = 0.1;
  size_t number = 0;
  for (const auto& [name, replicas] : forms(true)) {
    const Shape& shape = shapes[number % shapes.size()];
    const Trained kept = train({.name = name, .replicas = replicas}, shape, base);
    for (size_t from = 0; from < kAllParts.size(); ++from) {
      const Cut cut{.name = name + "-recomputing-" + std::to_string(from),
                    .replicas = recomputing(replicas, kAllParts, from)};
      const Trained again = train(cut, shape, base);
      EXPECT_EQ(again.weights, kept.weights) << cut.name;
      EXPECT_EQ(again.losses, kept.losses) << cut.name;
    }
    ++number;
  }
}

/// Exact trainings of the cuts that exact admits.
class ExactCuts : public Cuts {
 protected:
  ExactCuts() {
    base_.numerics = Numerics::kExact;
    base_.eval = {.every = 0, .samples = 11};
    for (Shape& shape : shapes_) shape.model.dropout = 0.1;
    for (Cut& cut : grid(true)) {
      if (cut.tensor_parallel) continue;
      for (SmallReplica& replica : cut.replicas) replica.micro_batch_grains = 1;
      cuts_.push_back(cut);
    }
    whole_ = on_one_rank(shapes_, base_);
  }

  SmallRun base_ = steps(10);
  std::vector<Shape> shapes_ = odd_shapes();
  std::vector<Cut> cuts_;
  std::vector<Trained> whole_;  ///< by shape
};

TEST_F(ExactCuts, GiveTheSameBits) {
  for (const Trained& whole : whole_) ASSERT_EQ(whole.evaluated.size(), 1u);
  for (const Cut& cut : cuts_) {
    const Trained trained = train(cut, shapes_[cut.shape], base_);
    EXPECT_EQ(trained.weights, whole_[cut.shape].weights) << cut.name;
    EXPECT_EQ(trained.evaluated, whole_[cut.shape].evaluated) << cut.name;
  }
}

TEST_F(ExactCuts, GiveTheSameBitsInReducedPrecision) {
  for (const Precision precision : {Precision::kBf16, Precision::kFp16}) {
    SmallRun base = base_;
    base.precision = precision;
    apart_ = spec_name(precision) + "-";
    const std::vector<Trained> whole = on_one_rank(shapes_, base);
    for (size_t i = 0; i < whole.size(); ++i) EXPECT_NE(whole[i].weights, whole_[i].weights);
    for (const Cut& cut : cuts_)
      EXPECT_EQ(train(cut, shapes_[cut.shape], base).weights, whole[cut.shape].weights)
          << cut.name << " in " << spec_name(precision);
  }
}

TEST_F(ExactCuts, GiveTheSameBitsWhenOneGoesOnWhereAnotherStopped) {
  const AtStep stop_halfway = [&](int rank, int64_t step, ControlWishes& wishes) -> Result<Unit> {
    if (rank == 0 && step == base_.steps / 2 - 1) wishes.stop = true;
    return Unit{};
  };
  for (size_t i = 0; i < cuts_.size(); ++i) {
    Cut first = cuts_[i];
    Cut second = cuts_[(i + 1) % cuts_.size()];
    first.threads = 1 + static_cast<int>(i % 3);
    second.threads = 1 + static_cast<int>((i + 1) % 3);
    const Shape& shape = shapes_[first.shape];
    const std::string directory = directory_of(first);
    const Trained begun = train(attempt_of(first, shape, base_, directory), stop_halfway);
    const Trained ended = train(attempt_of(second, shape, base_, directory, Epoch(2)));
    EXPECT_EQ(begun.losses.size(), base_.steps / 2U) << first.name;
    EXPECT_EQ(ended.losses.size(), base_.steps / 2U) << second.name;
    EXPECT_EQ(ended.weights, whole_[first.shape].weights) << first.name << ", then " << second.name;
  }
}

}  // namespace
}  // namespace motley::testing
