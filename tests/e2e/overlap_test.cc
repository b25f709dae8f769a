// Gradients that go out while others are still computed give the bits of those summed afterwards.
// Paced devices, which compute before their time is over, sum afterwards; the same plan on devices
// that are not paced sums beside.

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/e2e/small_run.h"

namespace motley::testing {
namespace {

using Stage = SmallReplica::Stage;

/// With several reports of final gradients in a backward pass, of 1 MiB and more each.
ModelSpec wide_gpt() {
  return {.type = "gpt", .layers = 4, .heads = 4, .width = 128, .context = 8, .vocab = 256};
}

class Overlap : public ::testing::Test {
 protected:
  /// Losses and the hash of the weights, as text. The first `beside` ranks sum beside.
  std::vector<std::string> train(const SmallRun& run, const std::string& name, size_t beside) {
    Attempt attempt = small_attempt(run, scratch_.path() + "/" + name);
    auto& devices = attempt.fleet.devices;
    if (beside > 0) attempt.fleet.clock = PaceClock::kSleep;
    for (size_t i = 0; i < std::min(beside, devices.size()); ++i) devices[i].paced.reset();
    Recorder recorder;
    const auto outcome = run_small(attempt, recorder);
    EXPECT_TRUE(outcome) << name << ": " << (outcome ? "" : outcome.error().to_string());
    std::vector<std::string> bits;
    for (const auto& [step, loss] : recorder.loss_bits()) bits.push_back(std::to_string(loss));
    EXPECT_EQ(std::ssize(bits), run.steps) << name;
    bits.push_back(outcome ? outcome->weights_xxh3 : "");
    return bits;
  }

  void expect_same_bits(const SmallRun& run, size_t beside = kAll) {
    const auto afterwards = train(run, "afterwards", 0);
    for (int round = 0; round < 3; ++round)
      EXPECT_EQ(train(run, "beside-" + std::to_string(round), beside), afterwards);
  }

  static constexpr size_t kAll = SIZE_MAX;

  const TemporaryDirectory scratch_;
};

SmallRun run_of(std::vector<SmallReplica> replicas) {
  SmallRun run;
  run.model = wide_gpt();
  run.replicas = std::move(replicas);
  run.steps = 4;
  return run;
}

const std::vector<SmallReplica> kUnlike = {{.stages = {{6}}, .grains = 3},
                                           {.stages = {{3}, {3, {0.5, 0.5}}}, .grains = 2}};

TEST_F(Overlap, OfUnlikeReplicas) { expect_same_bits(run_of(kUnlike)); }

TEST_F(Overlap, OfAShardedOptimizer) {
  SmallRun run = run_of(kUnlike);
  run.shard_optimizer = true;
  expect_same_bits(run);
}

TEST_F(Overlap, OfCompressedGradients) {
  SmallRun run = run_of(kUnlike);
  run.hosts = {0, 0, 1, 1};
  run.compress = {.kind = CodecKind::kInt8};
  expect_same_bits(run);
}

TEST_F(Overlap, OfCompressedGradientsWithAScaledLoss) {
  SmallRun run = run_of(kUnlike);
  run.hosts = {0, 0, 1, 1};
  run.compress = {.kind = CodecKind::kTopK, .warmup = 0};
  run.precision = Precision::kFp16;
  expect_same_bits(run);
}

TEST_F(Overlap, WithAScaledLoss) {
  SmallRun run = run_of({{.stages = {{6}}, .grains = 2}, {.stages = {{6}}, .grains = 3}});
  run.precision = Precision::kFp16;
  expect_same_bits(run);
}

/// The others, too, bring to its end what some have begun in a step that overflows.
TEST_F(Overlap, OfSomeRanksOnly) {
  SmallRun run = run_of({{.stages = {{6}}, .grains = 2}, {.stages = {{6}}, .grains = 3}});
  run.precision = Precision::kFp16;
  expect_same_bits(run, 1);
}

TEST_F(Overlap, InExactOneRankHasTheSameBits) {
  SmallRun run = run_of({{.stages = {{6}}, .grains = 3}, {.stages = {{2}, {4}}, .grains = 2}});
  run.numerics = Numerics::kExact;
  const auto beside = train(run, "beside", kAll);
  run.replicas = {{.stages = {{6}}, .grains = 5}};
  EXPECT_EQ(train(run, "alone", 0), beside);
}

}  // namespace
}  // namespace motley::testing
