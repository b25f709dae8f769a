// Trainings whose gradients are compressed between hosts.

#include <gtest/gtest.h>

#include <cmath>

#include "tests/e2e/small_run.h"

namespace motley::testing {
namespace {

using Stage = SmallReplica::Stage;

SmallRun run_on_two_hosts(CodecSpec codec) {
  SmallRun run;
  run.grains = {2, 1, 2};
  run.hosts = {0, 0, 1};
  run.compress = codec;
  run.steps = 30;
  return run;
}

CodecSpec factors(int rank, CodecValues values = CodecValues::kFp32) {
  return {.kind = CodecKind::kPowerSgd, .rank = rank, .values = values};
}

class Compression : public ::testing::Test {
 protected:
  struct Trained {
    double loss = 0;
    std::string weights;
    std::map<int64_t, uint64_t> loss_bits;  ///< by step
  };
  /// Goes on where a run of that name has stopped.
  Trained train(const SmallRun& run, const std::string& name, int64_t stop_at = 0) {
    const Attempt attempt = small_attempt(run, scratch_.path() + "/" + name);
    Recorder recorder;
    const auto outcome =
        run_small(attempt, recorder, [&](int, int64_t step, ControlWishes& wishes) -> Result<Unit> {
          if (step == stop_at) wishes.stop = true;
          return Unit{};
        });
    EXPECT_TRUE(outcome) << name << ": " << (outcome ? "" : outcome.error().to_string());
    return outcome ? Trained{outcome->loss, outcome->weights_xxh3, recorder.loss_bits()}
                   : Trained{};
  }

  const TemporaryDirectory scratch_;
};

TEST_F(Compression, LearnsLikeWithout) {
  const double without = train(run_on_two_hosts({}), "off").loss;
  for (const CodecSpec& codec :
       {CodecSpec{.kind = CodecKind::kFp16}, CodecSpec{.kind = CodecKind::kBf16},
        CodecSpec{.kind = CodecKind::kInt8}, factors(4), factors(4, CodecValues::kBf16)}) {
    const double with = train(run_on_two_hosts(codec), to_text(codec)).loss;
    EXPECT_NEAR(with, without, 0.02 * without) << to_text(codec);
  }
}

TEST_F(Compression, TheShortestCodecsLearn) {
  SmallRun one = run_on_two_hosts({});
  one.steps = 1;
  const double at_first = train(one, "first").loss;
  for (const CodecSpec& codec : {CodecSpec{.kind = CodecKind::kSign, .warmup = 0},
                                 CodecSpec{.kind = CodecKind::kTopK, .warmup = 0}, factors(1)}) {
    SmallRun run = run_on_two_hosts(codec);
    run.steps = 100;
    const Trained trained = train(run, to_text(codec));
    EXPECT_LT(trained.loss, 0.75 * at_first) << to_text(codec);
    EXPECT_EQ(train(run, to_text(codec) + " again").weights, trained.weights);
  }
}

TEST_F(Compression, ByFactorsIsOfWholeMatrices) {
  SmallRun run = run_on_two_hosts({});
  run.replicas = {{.stages = {{3}, {1}}, .grains = 2},
                  {.stages = {{4}}, .grains = 2},
                  {.stages = {{4, {0.5, 0.5}}}, .grains = 1}};
  run.hosts = {0, 1, 1, 2, 2};
  for (const bool sharded : {false, true}) {
    run.shard_optimizer = sharded;
    run.compress = {};
    const std::string name = sharded ? "sharded" : "unlike";
    const double without = train(run, name).loss;
    run.compress = factors(4);
    EXPECT_NEAR(train(run, name + " factors").loss, without, 0.1 * without) << name;
  }
}

/// What AdamW has learnt of gradients' sizes by then serves for all steps that follow.
TEST_F(Compression, AfterAWarmUpTheShortestCodecsLearnLikeWithout) {
  SmallRun run = run_on_two_hosts({});
  run.steps = 150;
  const double without = train(run, "long off").loss;
  for (const CodecKind kind : {CodecKind::kSign, CodecKind::kTopK}) {
    run.compress = {.kind = kind, .warmup = 0};
    const double at_once = train(run, to_text(run.compress)).loss;
    run.compress.warmup = 60;
    const double warmed_up = train(run, to_text(run.compress)).loss;
    EXPECT_GT(at_once, 1.4 * without) << to_text(run.compress);
    EXPECT_LT(warmed_up, 1.2 * without) << to_text(run.compress);
  }
}

TEST_F(Compression, BeginsWithTheFirstStepAfterTheWarmUp) {
  SmallRun run = run_on_two_hosts({});
  run.steps = 12;
  const auto without = train(run, "short off").loss_bits;
  for (const bool sharded : {false, true}) {
    run.shard_optimizer = sharded;
    run.compress = {.kind = CodecKind::kTopK, .warmup = 6};
    const std::string name = sharded ? "sharded" : "whole";
    const Trained at_once = train(run, name);
    for (const auto& [step, bits] : at_once.loss_bits)  // a loss is from before its step's sum
      EXPECT_EQ(bits == without.at(step), step <= 7) << name << ", step " << step;
    const std::string in_two = name + " in two";
    train(run, in_two, 5);  // nothing is kept back yet
    EXPECT_EQ(train(run, in_two).weights, at_once.weights) << name;
  }
}

TEST_F(Compression, OfShardedOptimizersAndUnlikeReplicas) {
  SmallRun run = run_on_two_hosts({});
  run.replicas = {{.stages = {{3}, {1}}, .grains = 2}, {.stages = {{4}}, .grains = 2}};
  run.hosts = {0, 1, 1};
  for (const bool sharded : {false, true}) {
    run.shard_optimizer = sharded;
    run.compress = {};
    const std::string name = sharded ? "sharded" : "unlike";
    const double without = train(run, name).loss;
    run.compress.kind = CodecKind::kInt8;
    EXPECT_NEAR(train(run, name + " int8").loss, without, 0.02 * without) << name;
  }
}

TEST_F(Compression, AStepThatOverflowsLeavesNoTraceInWhatIsKeptBack) {
  SmallRun run = run_on_two_hosts({.kind = CodecKind::kInt8});
  run.precision = Precision::kFp16;  // the first scales are too large for some steps
  const double with = train(run, "fp16 int8").loss;
  run.compress = factors(4);
  const double by_factors = train(run, "fp16 factors").loss;
  run.compress = {};
  const double without = train(run, "fp16").loss;
  EXPECT_NEAR(with, without, 0.02 * without);
  EXPECT_NEAR(by_factors, without, 0.1 * without);
}

TEST_F(Compression, GoesOnWhereItWasStopped) {
  for (const CodecSpec& codec :
       {CodecSpec{.kind = CodecKind::kTopK, .fraction = 0.05, .warmup = 0}, factors(4)}) {
    const SmallRun run = run_on_two_hosts(codec);
    const std::string name = to_text(codec);
    const double at_once = train(run, name).loss;
    train(run, name + " in two", 15);
    // What each island had kept back of a sum is one island's now: not the same bits.
    EXPECT_NEAR(train(run, name + " in two").loss, at_once, 0.03 * at_once) << name;
  }
}

TEST_F(Compression, GoesOnOnAnotherMixAndWithout) {
  for (const CodecSpec& codec :
       {CodecSpec{.kind = CodecKind::kTopK, .fraction = 0.05, .warmup = 0}, factors(4)}) {
    const SmallRun run = run_on_two_hosts(codec);
    const double at_once = train(run, to_text(codec)).loss;
    for (const bool compressed : {true, false}) {
      const std::string name = to_text(codec) + (compressed ? " to another mix" : " to one host");
      train(run, name, 15);
      SmallRun then = run;
      then.grains = {};
      then.replicas = {{.stages = {{4}}, .grains = 3}, {.stages = {{2}, {2}}, .grains = 2}};
      then.hosts = compressed ? std::vector<int>{0, 1, 2} : std::vector<int>{0, 0, 0};
      EXPECT_NEAR(train(then, name).loss, at_once, 0.05 * at_once) << name;
    }
  }
}

}  // namespace
}  // namespace motley::testing
