#include "worker/train/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

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

  ScratchDirectory scratch_;
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

/// Twelve steps with a checkpoint every four, to be interrupted.
class Resuming : public Training, public ::testing::WithParamInterface<Numerics> {
 protected:
  SmallRun plain() const {
    return {.grains = {3, 1},
            .numerics = GetParam(),
            .steps = 12,
            .save_every = 4,
            .eval = {.every = 6, .samples = 5}};
  }
  /// What the run comes to when nothing happens.
  void run_whole() { whole_ = must_run(small_attempt(plain(), directory("whole")), recorder_); }
  /// Its losses from `step` on.
  std::map<int64_t, uint64_t> losses_from(int64_t step) const {
    auto bits = recorder_.loss_bits();
    bits.erase(bits.begin(), bits.lower_bound(step));
    return bits;
  }
  /// The run, broken off when rank 1 dies after step 10: checkpoints of steps 4 and 8 remain.
  std::string broken_run() {
    const std::string run = directory("broken");
    Recorder recorder;
    const auto failed = run_small(small_attempt(plain(), run), recorder,
                                  [](int rank, int64_t step, ControlWishes&) -> Result<Unit> {
                                    if (rank == 1 && step == 10)
                                      return fail(ErrorCode::kDeviceLost, "gone");
                                    return Unit{};
                                  });
    EXPECT_FALSE(failed.has_value());
    return run;
  }

  TrainOutcome whole_;
  Recorder recorder_;
};

TEST_P(Resuming, AfterALostRankLossesAndWeightsAreThoseOfARunNeverInterrupted) {
  run_whole();
  Recorder again;
  const TrainOutcome outcome = must_run(small_attempt(plain(), broken_run(), Epoch(2)), again);
  EXPECT_EQ(again.loss_bits(), losses_from(9));
  EXPECT_EQ(outcome.weights_xxh3, whole_.weights_xxh3);
  EXPECT_EQ(outcome.eval_loss, whole_.eval_loss);
}

TEST_P(Resuming, AStopSavesAtTheBoundaryAndTheNextAttemptGoesOnFromThere) {
  run_whole();
  const std::string run = directory("stopped");
  Recorder before;
  const TrainOutcome stopped =
      must_run(small_attempt(plain(), run), before,
               [](int rank, int64_t step, ControlWishes& wishes) -> Result<Unit> {
                 if (rank == 1 && step == 5) wishes.stop = true;
                 return Unit{};
               });
  EXPECT_TRUE(stopped.stopped);
  EXPECT_EQ(stopped.step, 6);
  EXPECT_EQ(stopped.checkpoint, "step-00000006.e1");
  Recorder again;
  const TrainOutcome outcome = must_run(small_attempt(plain(), run, Epoch(2)), again);
  EXPECT_FALSE(outcome.stopped);
  EXPECT_EQ(again.loss_bits(), losses_from(7));
  EXPECT_EQ(outcome.weights_xxh3, whole_.weights_xxh3);
}

TEST_P(Resuming, AnotherNumberOfRanksGoesOnFromTheSameState) {
  run_whole();
  SmallRun other = plain();
  other.grains = {1, 1, 2};
  Recorder again;
  const TrainOutcome outcome = must_run(small_attempt(other, broken_run(), Epoch(2)), again);
  ASSERT_EQ(again.account(0).steps.size(), 4U);
  if (GetParam() == Numerics::kExact) {
    EXPECT_EQ(again.loss_bits(), losses_from(9));
    EXPECT_EQ(outcome.weights_xxh3, whole_.weights_xxh3);
  }
  for (const auto& [step, report] : again.account(0).steps) {
    const double wanted = recorder_.account(0).steps.at(step).loss;
    EXPECT_NEAR(report.loss, wanted, 1e-4 * wanted);
  }
}

void flip_a_byte(const std::string& path) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-100, std::ios::end);
  const int byte = file.get();
  file.seekp(-100, std::ios::end);
  file.put(static_cast<char>(byte ^ 1));
}

TEST_P(Resuming, ADamagedCheckpointSendsAllRanksToTheOneBefore) {
  run_whole();
  const std::string run = broken_run();
  flip_a_byte(run + "/checkpoints/step-00000008.e1/s0001.safetensors");
  Recorder again;
  const TrainOutcome outcome = must_run(small_attempt(plain(), run, Epoch(2)), again);
  EXPECT_EQ(again.loss_bits(), losses_from(5));
  EXPECT_EQ(outcome.weights_xxh3, whole_.weights_xxh3);
}

TEST_P(Resuming, WithoutOneSoundCheckpointTheRunIsNotSilentlyBegunAnew) {
  const std::string run = broken_run();
  for (const char* name : {"step-00000004.e1", "step-00000008.e1"})
    flip_a_byte(run + "/checkpoints/" + name + "/s0000.safetensors");
  Recorder again;
  const auto outcome = run_small(small_attempt(plain(), run, Epoch(2)), again);
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().code, ErrorCode::kCorrupt);
}

TEST_P(Resuming, AFinishedRunGoesOnWithMoreSteps) {
  const std::string run = directory("more");
  SmallRun shorter = plain();
  shorter.steps = 4;
  Recorder first;
  must_run(small_attempt(shorter, run), first);
  Recorder again;
  const TrainOutcome outcome = must_run(small_attempt(plain(), run, Epoch(2)), again);
  EXPECT_EQ(outcome.step, 12);
  EXPECT_EQ(again.account(0).steps.begin()->first, 5);
}

TEST_P(Resuming, HostsWithoutASharedFileSystemSaveAndResumeTogether) {
  run_whole();
  // Rank 0 on one host, rank 1 on another: the second keeps nothing of its own.
  std::filesystem::create_directories(directory("a"));
  std::filesystem::create_directories(directory("b"));
  RootedFileSystem first(directory("a"));
  RootedFileSystem second(directory("b"));
  const auto apart = [&](int rank) -> FileSystem& { return rank == 0 ? first : second; };
  const std::string run = directory("run");
  Recorder before;
  Result<TrainOutcome> outcome = run_small(
      small_attempt(plain(), run), before,
      [](int rank, int64_t step, ControlWishes& wishes) -> Result<Unit> {
        if (rank == 1 && step == 7) wishes.stop = true;
        return Unit{};
      },
      apart);
  ASSERT_TRUE(outcome.has_value()) << outcome.error().to_string();
  const std::string newest = run + "/checkpoints/step-00000008.e1";
  EXPECT_TRUE(first.exists(newest + "/s0001.safetensors"));
  EXPECT_FALSE(second.exists(newest));

  Recorder again;
  outcome = run_small(small_attempt(plain(), run, Epoch(2)), again, nullptr, apart);
  ASSERT_TRUE(outcome.has_value()) << outcome.error().to_string();
  EXPECT_EQ(again.loss_bits(), losses_from(9));
  EXPECT_EQ(outcome->weights_xxh3, whole_.weights_xxh3);
}

INSTANTIATE_TEST_SUITE_P(Numerics, Resuming, ::testing::Values(Numerics::kFast, Numerics::kExact),
                         [](const auto& instance) {
                           return instance.param == Numerics::kFast ? "Fast" : "Exact";
                         });

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

TEST_F(Training, OtherDataIsNotResumedWith) {
  const SmallRun run{.grains = {2, 2}, .steps = 2};
  Recorder recorder;
  must_run(small_attempt(run, directory("run")), recorder);
  std::ofstream(directory("run") + "/text", std::ios::app) << "one sentence more";
  const auto outcome = run_small(small_attempt(run, directory("run"), Epoch(2)), recorder);
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().code, ErrorCode::kInvalidSpec);
  EXPECT_THAT(outcome.error().message, HasSubstr("other data"));
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
