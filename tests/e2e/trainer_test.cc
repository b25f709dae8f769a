#include "worker/train/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "core/file_system.h"
#include "core/json_file.h"
#include "core/manifest.h"
#include "tests/e2e/small_run.h"

namespace motley::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Some ways of dealing eight grains: alone, two to four ranks, equal and not.
const std::vector<std::vector<int>> kDeals = {{8}, {4, 4}, {3, 3, 2}, {2, 2, 2, 2}, {4, 2, 1, 1}};

class Training : public ::testing::Test {
 protected:
  std::string directory(const std::string& name) { return scratch_.path() + "/" + name; }

  TrainOutcome must_run(const Attempt& attempt, Recorder& recorder, const AtStep& hook = nullptr) {
    auto outcome = run_small(attempt, recorder, hook);
    EXPECT_TRUE(outcome.has_value()) << (outcome ? "" : outcome.error().to_string());
    return outcome.value_or(TrainOutcome{});
  }

  TemporaryDirectory scratch_;
};

std::string name_of_deal(const std::vector<int>& grains) {
  std::string name;
  for (const int grain : grains) name += "-" + std::to_string(grain);
  return name;
}

TEST_F(Training, FastGivesTheSameLossCurveHoweverTheGrainsAreDealt) {
  std::map<int64_t, StepReport> alone;
  for (const auto& grains : kDeals) {
    Recorder recorder;
    must_run(small_attempt({.grains = grains, .steps = 50}, directory(name_of_deal(grains))),
             recorder);
    const auto& steps = recorder.account(0).steps;
    ASSERT_EQ(steps.size(), 50U);
    if (alone.empty()) alone = steps;
    for (const auto& [step, report] : steps)
      EXPECT_NEAR(report.loss, alone[step].loss, 1e-4 * alone[step].loss)
          << "step " << step << " of" << name_of_deal(grains);
  }
  EXPECT_LT(alone[50].loss, 0.8 * alone[1].loss) << "nothing was learnt";
}

TEST_F(Training, ExactGivesTheSameBitsHoweverTheGrainsAreDealt) {
  std::map<int64_t, uint64_t> losses;
  std::string weights;
  double eval_loss = 0;
  for (const auto& grains : kDeals) {
    Recorder recorder;
    const TrainOutcome outcome = must_run(small_attempt({.grains = grains,
                                                         .numerics = Numerics::kExact,
                                                         .steps = 12,
                                                         .eval = {.every = 0, .samples = 21}},
                                                        directory(name_of_deal(grains))),
                                          recorder);
    if (weights.empty()) {
      losses = recorder.loss_bits();
      weights = outcome.weights_xxh3;
      eval_loss = *outcome.eval_loss;
    }
    EXPECT_EQ(recorder.loss_bits(), losses) << name_of_deal(grains);
    EXPECT_EQ(outcome.weights_xxh3, weights) << name_of_deal(grains);
    EXPECT_EQ(*outcome.eval_loss, eval_loss) << name_of_deal(grains);
  }
}

TEST_F(Training, Fp8LearnsAlmostAsBf16Does) {
  const auto last_loss = [&](Precision precision, const std::string& name) {
    Recorder recorder;
    must_run(
        small_attempt({.grains = {4, 4}, .precision = precision, .steps = 50}, directory(name)),
        recorder);
    const auto& steps = recorder.account(0).steps;
    EXPECT_LT(steps.at(50).loss, 0.8 * steps.at(1).loss) << "nothing was learnt in " << name;
    return steps.at(50).loss;
  };
  const double bf16 = last_loss(Precision::kBf16, "bf16"), fp8 = last_loss(Precision::kFp8, "fp8");
  EXPECT_NEAR(fp8, bf16, 0.05 * bf16);
  EXPECT_NE(fp8, bf16);
}

TEST_F(Training, ExactInFp8GivesTheSameBitsHoweverTheGrainsAreDealt) {
  std::string weights;
  for (const std::vector<int>& grains : {std::vector{8}, {4, 2, 1, 1}}) {
    Recorder recorder;
    const TrainOutcome outcome = must_run(small_attempt({.grains = grains,
                                                         .numerics = Numerics::kExact,
                                                         .precision = Precision::kFp8,
                                                         .steps = 6},
                                                        directory(name_of_deal(grains))),
                                          recorder);
    if (weights.empty()) weights = outcome.weights_xxh3;
    EXPECT_EQ(outcome.weights_xxh3, weights) << name_of_deal(grains);
  }
}

TEST_F(Training, EveryRankComputesItsOwnGrainsOnly) {
  Recorder recorder;
  must_run(small_attempt({.grains = {4, 2, 1, 1}, .grain = 3, .steps = 3}, directory("run")),
           recorder);
  for (const auto& [rank, samples] : std::map<int, int>{{0, 12}, {1, 6}, {2, 3}, {3, 3}})
    for (const auto& [step, report] : recorder.account(rank).steps)
      EXPECT_EQ(report.samples, samples) << "rank " << rank << " at step " << step;
}

TEST_F(Training, VirtualClockGivesTheStepTimeOfTheSlowestDevice) {
  Recorder recorder;
  must_run(small_attempt({.grains = {2, 2}, .speeds = {1.0, 0.25}, .steps = 4}, directory("run")),
           recorder);
  const StepReport fast = recorder.account(0).steps.at(3);
  const StepReport slow = recorder.account(1).steps.at(3);
  EXPECT_NEAR(fast.step_seconds, slow.step_seconds, 1e-9);
  EXPECT_NEAR(slow.wait_seconds, 0, 1e-9);
  // 1 ms of overhead apart, a quarter of the speed takes four times the time.
  EXPECT_NEAR(slow.compute_seconds - 0.001, 4 * (fast.compute_seconds - 0.001), 1e-6);
  EXPECT_NEAR(fast.compute_seconds + fast.update_seconds + fast.wait_seconds, fast.step_seconds,
              1e-9);
  EXPECT_NEAR(slow.compute_seconds + slow.update_seconds, slow.step_seconds, 1e-9);
}

TEST_F(Training, ACheckpointIsSavedOnRequestAndTrainingGoesOn) {
  Recorder recorder;
  must_run(small_attempt({.grains = {2, 2}, .steps = 8}, directory("run")), recorder,
           [](int rank, int64_t step, ControlWishes& wishes) -> Result<Unit> {
             if (rank == 1 && step == 2) wishes.checkpoint = true;
             return Unit{};
           });
  std::vector<int64_t> steps;
  for (const SavedReport& saved : recorder.account(0).saved) steps.push_back(saved.step);
  EXPECT_THAT(steps, ElementsAre(3, 8));
}

TEST_F(Training, OldCheckpointsAreRemovedDownToTwo) {
  SmallRun run{.grains = {2, 2}, .steps = 12, .save_every = 3};
  Attempt attempt = small_attempt(run, directory("run"));
  attempt.job.checkpoint.keep = 2;
  Recorder recorder;
  must_run(attempt, recorder);
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory("run") + "/checkpoints"))
    names.push_back(entry.path().filename());
  EXPECT_THAT(names, ::testing::UnorderedElementsAre("step-00000009.e1", "step-00000012.e1"));
}

/// A rate that no single-precision weight survives, of which neither loss nor gradient of the only
/// step tells.
TEST_F(Training, AStateThatIsNotFiniteEndsTheRunUnsaved) {
  const SmallRun run{.grains = {2, 2}, .lr = 1e39, .steps = 1, .save_every = 1};
  Attempt attempt = small_attempt(run, directory("run"));
  attempt.job.train.schedule.warmup = 1;
  Recorder recorder;
  const auto outcome = run_small(attempt, recorder);
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().code, ErrorCode::kDiverged) << outcome.error().to_string();
  EXPECT_THAT(outcome.error().message, HasSubstr("is not finite: lower train.optimizer.lr"));
  EXPECT_TRUE(recorder.account(0).saved.empty());
  EXPECT_TRUE(std::filesystem::is_empty(directory("run") + "/checkpoints"));
}

/// Weights so large that single precision holds the loss but not its gradient.
TEST_F(Training, AGradientThatIsNotFiniteEndsTheRunBeforeItIsUsed) {
  const SmallRun run{.grains = {2, 2}, .lr = 1e10, .steps = 50, .save_every = 1};
  Attempt attempt = small_attempt(run, directory("run"));
  attempt.job.train.schedule = {.type = "constant", .warmup = 0, .min_lr = 0};
  attempt.job.train.optimizer.clip = 0;
  Recorder recorder;
  const auto outcome = run_small(attempt, recorder);
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().code, ErrorCode::kDiverged) << outcome.error().to_string();
  EXPECT_THAT(outcome.error().message, HasSubstr("loss or gradient not finite at step"));
  for (const auto& [step, report] : recorder.account(0).steps) {
    EXPECT_TRUE(std::isfinite(report.loss)) << step;
    EXPECT_TRUE(std::isfinite(report.gradient_norm)) << step;
  }
}

/// A scale that is too large: the gradient overflows, the step is repeated with half of it.
TEST_F(Training, AnOverflowInFp16LowersTheScaleOfTheLossAndRepeatsTheStep) {
  SmallRun run{.grains = {2, 2}, .precision = Precision::kFp16, .steps = 3};
  Recorder before;
  must_run(small_attempt(run, directory("run")), before);
  const std::string manifest = directory("run") + "/checkpoints/step-00000003.e1/manifest.json";
  FileSystem& fs = real_file_system();
  Manifest edited = *manifest_from_text(*read_text(fs, manifest, Bytes(1 << 20)));
  EXPECT_EQ(edited.loss_scale.kept_steps, 3);
  const int usual = edited.loss_scale.exponent;
  edited.loss_scale.exponent = 15;
  std::ofstream(manifest) << to_text(edited);

  run.steps = 6;
  Recorder after;
  must_run(small_attempt(run, directory("run"), Epoch(2)), after);
  const auto& steps = after.account(0).steps;
  ASSERT_EQ(steps.size(), 3U);
  for (const auto& [step, report] : steps) EXPECT_TRUE(std::isfinite(report.gradient_norm)) << step;
  const Manifest last = *manifest_from_text(*read_text(
      fs, directory("run") + "/checkpoints/step-00000006.e2/manifest.json", Bytes(1 << 20)));
  EXPECT_LT(last.loss_scale.exponent, 15);
  EXPECT_GE(last.loss_scale.exponent, usual);
}

TEST_F(Training, AFixedScaleThatOverflowsEndsTheRun) {
  Attempt attempt = small_attempt({.grains = {2, 2}, .precision = Precision::kFp16, .steps = 3},
                                  directory("run"));
  attempt.job.train.loss_scale = TrainSpec::kMostLossScale;
  Recorder recorder;
  const auto outcome = run_small(attempt, recorder);
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().code, ErrorCode::kDiverged);
}

TEST_F(Training, APlanOfAnotherWorldIsRefused) {
  Attempt attempt = small_attempt({.grains = {2, 2}}, directory("run"));
  attempt.fleet.devices.pop_back();
  Recorder recorder;
  const auto outcome = run_small(attempt, recorder);
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().code, ErrorCode::kNoDevice);
  EXPECT_THAT(outcome.error().message, HasSubstr("host/1"));
}

}  // namespace
}  // namespace motley::testing
