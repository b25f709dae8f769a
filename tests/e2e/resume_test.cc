// A run that was interrupted goes on as if nothing had happened, or says in one line why it cannot.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/set_aside.h"
#include "tests/e2e/small_run.h"
#include "tests/support/fault_file_system.h"
#include "worker/checkpoint/store.h"
#include "worker/train/trainer.h"

namespace motley::testing {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

/// Twelve steps with a checkpoint every four, to be interrupted.
class Interrupted : public ::testing::Test {
 protected:
  explicit Interrupted(Numerics numerics)
      : plain_{.grains = {3, 1},
               .numerics = numerics,
               .steps = 12,
               .save_every = 4,
               .eval = {.every = 6, .samples = 5}} {}

  std::string directory(const std::string& name) { return scratch_.path() + "/" + name; }

  TrainOutcome must_run(const Attempt& attempt, Recorder& recorder, const AtStep& hook = nullptr,
                        const FileSystemOf& file_system_of = nullptr) {
    auto outcome = run_small(attempt, recorder, hook, file_system_of);
    EXPECT_TRUE(outcome.has_value()) << (outcome ? "" : outcome.error().to_string());
    return outcome.value_or(TrainOutcome{});
  }
  /// The error that ends an attempt before its first step.
  Error refusal(const Attempt& attempt, const FileSystemOf& file_system_of = nullptr) {
    Recorder recorder;
    const auto outcome = run_small(attempt, recorder, nullptr, file_system_of);
    EXPECT_FALSE(outcome.has_value());
    for (const int rank : {0, 1}) EXPECT_TRUE(recorder.account(rank).steps.empty());
    return outcome ? Error{} : outcome.error();
  }

  /// What the run comes to when nothing happens.
  void run_whole() { whole_ = must_run(small_attempt(plain_, directory("whole")), recorder_); }
  /// Its losses from `step` on.
  std::map<int64_t, uint64_t> losses_from(int64_t step) const {
    auto bits = recorder_.loss_bits();
    bits.erase(bits.begin(), bits.lower_bound(step));
    return bits;
  }
  /// The run, broken off when rank 1 dies after step 10: checkpoints of steps 4 and 8 remain.
  void break_off(const Attempt& attempt, const FileSystemOf& file_system_of = nullptr) {
    Recorder recorder;
    const auto failed = run_small(
        attempt, recorder,
        [](int rank, int64_t step, ControlWishes&) -> Result<Unit> {
          if (rank == 1 && step == 10) return fail(ErrorCode::kDeviceLost, "gone");
          return Unit{};
        },
        file_system_of);
    EXPECT_FALSE(failed.has_value());
  }
  std::string broken_run() {
    const std::string run = directory("broken");
    break_off(small_attempt(plain_, run));
    return run;
  }
  /// The next attempt of `run`.
  Attempt again_in(const std::string& run) { return small_attempt(plain_, run, Epoch(2)); }

  SmallRun plain_;
  TemporaryDirectory scratch_;
  TrainOutcome whole_;
  Recorder recorder_;
};

std::string name_of(Numerics numerics) { return numerics == Numerics::kFast ? "Fast" : "Exact"; }

class Resuming : public Interrupted, public ::testing::WithParamInterface<Numerics> {
 protected:
  Resuming() : Interrupted(GetParam()) {}
};

TEST_P(Resuming, AfterALostRankLossesAndWeightsAreThoseOfARunNeverInterrupted) {
  run_whole();
  Recorder again;
  const TrainOutcome outcome = must_run(small_attempt(plain_, broken_run(), Epoch(2)), again);
  EXPECT_EQ(again.loss_bits(), losses_from(9));
  EXPECT_EQ(outcome.weights_xxh3, whole_.weights_xxh3);
  EXPECT_EQ(outcome.eval_loss, whole_.eval_loss);
}

TEST_P(Resuming, AStopSavesAtTheBoundaryAndTheNextAttemptGoesOnFromThere) {
  run_whole();
  const std::string run = directory("stopped");
  Recorder before;
  const TrainOutcome stopped =
      must_run(small_attempt(plain_, run), before,
               [](int rank, int64_t step, ControlWishes& wishes) -> Result<Unit> {
                 if (rank == 1 && step == 5) wishes.stop = true;
                 return Unit{};
               });
  EXPECT_TRUE(stopped.stopped);
  EXPECT_EQ(stopped.step, 6);
  EXPECT_EQ(stopped.checkpoint, "step-00000006.e1");
  Recorder again;
  const TrainOutcome outcome = must_run(small_attempt(plain_, run, Epoch(2)), again);
  EXPECT_FALSE(outcome.stopped);
  EXPECT_EQ(again.loss_bits(), losses_from(7));
  EXPECT_EQ(outcome.weights_xxh3, whole_.weights_xxh3);
}

TEST_P(Resuming, AnotherNumberOfRanksGoesOnFromTheSameState) {
  run_whole();
  const std::string run = broken_run();
  for (const auto& grains : {std::vector<int>{1, 1, 2}, std::vector<int>{4}}) {
    const std::string copy = directory(std::to_string(grains.size()));
    std::filesystem::copy(run, copy, std::filesystem::copy_options::recursive);
    SmallRun other = plain_;
    other.grains = grains;
    Recorder again;
    const TrainOutcome outcome = must_run(small_attempt(other, copy, Epoch(2)), again);
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
}

void flip_a_byte(const std::string& path) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-100, std::ios::end);
  const int byte = file.get();
  file.seekp(-100, std::ios::end);
  file.put(static_cast<char>(byte ^ 1));
}

TEST_P(Resuming, ADamagedCheckpointIsSetAsideAndAllRanksTakeTheOneBefore) {
  run_whole();
  const std::string run = broken_run();
  const std::string checkpoints = run + "/checkpoints";
  flip_a_byte(checkpoints + "/step-00000008.e1/s0001.safetensors");
  Recorder again;
  const TrainOutcome outcome = must_run(again_in(run), again);
  EXPECT_EQ(again.loss_bits(), losses_from(5));
  EXPECT_EQ(outcome.weights_xxh3, whole_.weights_xxh3);
  ASSERT_THAT(again.account(0).skipped, SizeIs(1));
  EXPECT_THAT(skipped_text(again.account(0).skipped[0]),
              AllOf(StartsWith("checkpoint of step 8 is damaged (s0001.safetensors: block "),
                    EndsWith("checksum): set aside as .suspect-step-00000008.e1")));
  EXPECT_FALSE(std::filesystem::exists(checkpoints + "/step-00000008.e1"));
  const auto aside = *set_aside_in(real_file_system(), checkpoints);
  ASSERT_THAT(aside, SizeIs(1));
  EXPECT_EQ(aside[0].step, 8);
  EXPECT_EQ(aside[0].why, again.account(0).skipped[0].why);
}

/// Gives one file back no longer; everything else as it is.
class FailingDisk final : public RootedFileSystem {
 public:
  explicit FailingDisk(std::string file) : RootedFileSystem(""), file_(std::move(file)) {}

  Result<std::unique_ptr<ReadableFile>> open_within(const std::string& directory,
                                                    const std::string& name) override {
    if (directory + "/" + name == file_) return fail(ErrorCode::kIo, "cannot read " + file_);
    return RootedFileSystem::open_within(directory, name);
  }

 private:
  const std::string file_;
};

TEST_P(Resuming, ACheckpointThatOneRankCannotReadIsPassedOverAndKeepsItsName) {
  run_whole();
  const std::string run = broken_run();
  for (const int blind : {0, 1}) {
    SCOPED_TRACE(blind);
    const std::string copy = directory(std::to_string(blind));
    std::filesystem::copy(run, copy, std::filesystem::copy_options::recursive);
    FailingDisk disk(copy + "/checkpoints/step-00000008.e1/s0001.safetensors");
    Recorder again;
    must_run(again_in(copy), again, nullptr,
             [&](int rank) -> FileSystem& { return rank == blind ? disk : real_file_system(); });
    EXPECT_EQ(again.loss_bits(), losses_from(5));
    ASSERT_THAT(again.account(0).skipped, SizeIs(1));
    EXPECT_EQ(skipped_text(again.account(0).skipped[0]),
              "checkpoint of step 8 cannot be read (cannot read s0001.safetensors): skipped");
    EXPECT_TRUE(std::filesystem::exists(copy + "/checkpoints/step-00000008.e1"));
  }
}

TEST_P(Resuming, AFinishedRunGoesOnWithMoreSteps) {
  const std::string run = directory("more");
  SmallRun shorter = plain_;
  shorter.steps = 4;
  Recorder first;
  must_run(small_attempt(shorter, run), first);
  Recorder again;
  const TrainOutcome outcome = must_run(small_attempt(plain_, run, Epoch(2)), again);
  EXPECT_EQ(outcome.step, 12);
  EXPECT_EQ(again.account(0).steps.begin()->first, 5);
}

INSTANTIATE_TEST_SUITE_P(Numerics, Resuming, ::testing::Values(Numerics::kFast, Numerics::kExact),
                         [](const auto& tested) { return name_of(tested.param); });

/// What may be under way when a checkpoint is taken.
struct Circumstance {
  const char* name;
  void (*arrange)(Attempt&);
};

const Circumstance kCircumstances[] = {
    {"WarmUpInProgress", [](Attempt& attempt) { attempt.job.train.schedule.warmup = 10; }},
    // Step 4 ends with sample 32 of an epoch of some 36, step 8 with sample 64.
    {"PartOfAnEpochOfData",
     [](Attempt& attempt) {
       std::filesystem::resize_file(attempt.job.data.files[0], 40 * 16 + 1);
     }},
    {"EvaluationDueAtTheCheckpoint",
     [](Attempt& attempt) { attempt.job.train.eval.every = attempt.job.checkpoint.every_steps; }},
};

class ResumingAmid : public Interrupted,
                     public ::testing::WithParamInterface<std::tuple<Numerics, Circumstance>> {
 protected:
  ResumingAmid() : Interrupted(std::get<0>(GetParam())) {}

  Attempt arranged(const std::string& name, Epoch epoch = Epoch(1)) {
    Attempt attempt = small_attempt(plain_, directory(name), epoch);
    std::get<1>(GetParam()).arrange(attempt);
    return attempt;
  }
};

TEST_P(ResumingAmid, GivesTheSameBits) {
  const TrainOutcome whole = must_run(arranged("whole"), recorder_);
  break_off(arranged("broken"));
  Recorder again;
  const TrainOutcome outcome = must_run(arranged("broken", Epoch(2)), again);
  EXPECT_EQ(outcome.weights_xxh3, whole.weights_xxh3);
  EXPECT_EQ(outcome.eval_loss, whole.eval_loss);
  EXPECT_EQ(again.loss_bits(), losses_from(9));
  for (const auto& [step, report] : again.account(0).steps) {
    const StepReport& before = recorder_.account(0).steps.at(step);
    EXPECT_EQ(report.learning_rate, before.learning_rate) << step;
    EXPECT_EQ(report.gradient_norm, before.gradient_norm) << step;
  }
  std::map<int64_t, double> evaluated;
  for (const auto& report : recorder_.account(0).evaluated) evaluated[report.step] = report.loss;
  for (const auto& report : again.account(0).evaluated)
    EXPECT_EQ(report.loss, evaluated.at(report.step)) << report.step;
}

INSTANTIATE_TEST_SUITE_P(Each, ResumingAmid,
                         ::testing::Combine(::testing::Values(Numerics::kFast, Numerics::kExact),
                                            ::testing::ValuesIn(kCircumstances)),
                         [](const auto& tested) {
                           return name_of(std::get<0>(tested.param)) +
                                  std::get<1>(tested.param).name;
                         });

class NotResuming : public Interrupted {
 protected:
  NotResuming() : Interrupted(Numerics::kFast) {}

  std::string path_in(const std::string& run, int64_t step, const std::string& file) {
    return run + "/checkpoints/" + checkpoint_directory_name(step, Epoch(1)) + "/" + file;
  }
  /// Writes the manifest anew, changed.
  void change_manifest(const std::string& path, const std::function<void(Manifest&)>& change) {
    auto text = read_text(real_file_system(), path, Bytes(kMaxManifestBytes));
    ASSERT_TRUE(text);
    auto manifest = manifest_from_text(*text);
    ASSERT_TRUE(manifest);
    change(*manifest);
    std::ofstream(path, std::ios::trunc) << to_text(*manifest);
  }
};

TEST_F(NotResuming, FromDamagedCheckpointsAloneIsNoBeginningAnew) {
  for (const char* file : {"s0000.safetensors", "manifest.json"}) {
    const std::string run = directory(file);
    break_off(small_attempt(plain_, run));
    for (const int64_t step : {4, 8}) flip_a_byte(path_in(run, step, file));
    const Error error = refusal(again_in(run));
    EXPECT_EQ(error.code, ErrorCode::kCorrupt);
    EXPECT_THAT(error.message, AllOf(HasSubstr(run + "/checkpoints"), HasSubstr("--fresh")));
    EXPECT_THAT(*set_aside_in(real_file_system(), run + "/checkpoints"), SizeIs(2));
    EXPECT_EQ(refusal(again_in(run)).code, ErrorCode::kCorrupt) << "nor when it is tried again";
  }
}

TEST_F(NotResuming, WithAnotherModel) {
  const std::string run = broken_run();
  for (const auto& change : std::vector<std::function<void(SmallRun&)>>{
           [](SmallRun& other) { other.model.layers = 1; },
           [](SmallRun& other) { other.model.layers = 3; },
           [](SmallRun& other) { other.model.width = 16; }}) {
    SmallRun other = plain_;
    change(other);
    const Error error = refusal(small_attempt(other, run, Epoch(2)));
    EXPECT_EQ(error.code, ErrorCode::kInvalidSpec);
    EXPECT_THAT(error.message, HasSubstr("checkpoint step-00000008.e1 is of another model: "));
  }
  EXPECT_THAT(*set_aside_in(real_file_system(), run + "/checkpoints"), SizeIs(0));
}

TEST_F(NotResuming, WithOtherDataOrAnotherWayOfLearning) {
  const std::string run = broken_run();
  Attempt other = again_in(run);
  other.job.train.seed += 1;
  EXPECT_THAT(refusal(other).message, HasSubstr("another train.seed"));
  SmallRun larger = plain_;
  larger.grains = {3, 2};
  EXPECT_THAT(refusal(small_attempt(larger, run, Epoch(2))).message,
              HasSubstr("another train.global_batch"));
  std::ofstream(run + "/text", std::ios::app) << "one sentence more";
  const Error error = refusal(again_in(run));
  EXPECT_EQ(error.code, ErrorCode::kInvalidSpec);
  EXPECT_THAT(error.message, HasSubstr("other data"));
}

TEST_F(NotResuming, InFloat64) {
  const std::string run = broken_run();
  Attempt other = again_in(run);
  other.job.train.precision = Precision::kFp64;
  for (ReplicaPlan& replica : other.plan.replicas) replica.stages[0].precision = Precision::kFp64;
  EXPECT_THAT(refusal(other).message, HasSubstr("another model"));
}

TEST_F(NotResuming, FromWhatANewerProgramWrote) {
  const std::string run = broken_run();
  change_manifest(path_in(run, 8, "manifest.json"), [](Manifest& manifest) {
    manifest.version = kManifestVersion + 1;
    manifest.code_version = "9.9.9";
  });
  const Error error = refusal(again_in(run));
  EXPECT_EQ(error.code, ErrorCode::kUnsupported);
  EXPECT_THAT(error.message, AllOf(HasSubstr("step-00000008.e1"), HasSubstr("Motley 9.9.9")));
  Attempt older = again_in(run);
  older.resume_checkpoint = "step-00000004.e1";
  Recorder again;
  must_run(older, again);
  EXPECT_EQ(again.account(0).steps.begin()->first, 5);
}

TEST_F(NotResuming, FromAnotherThanTheOneNamed) {
  const std::string run = broken_run();
  flip_a_byte(path_in(run, 8, "s0000.safetensors"));
  Attempt named = again_in(run);
  named.resume_checkpoint = "step-00000008.e1";
  Error error = refusal(named);
  EXPECT_EQ(error.code, ErrorCode::kCorrupt);
  EXPECT_THAT(error.message, HasSubstr("step-00000008.e1"));
  EXPECT_THAT(*set_aside_in(real_file_system(), run + "/checkpoints"), SizeIs(1));
  named.resume_checkpoint = "step-00000006.e1";
  error = refusal(named);
  EXPECT_EQ(error.code, ErrorCode::kNotFound);
  EXPECT_THAT(error.message, HasSubstr("no checkpoint step-00000006.e1 in " + run));
}

TEST_F(NotResuming, WhatAnotherVersionOfTheSameFormatWroteIsReadAsOurs) {
  run_whole();
  const std::string run = broken_run();
  change_manifest(path_in(run, 8, "manifest.json"),
                  [](Manifest& manifest) { manifest.code_version = "0.0.1"; });
  Recorder again;
  must_run(again_in(run), again);
  EXPECT_EQ(again.loss_bits(), losses_from(9));
}

/// Rank 0 on one host, rank 1 on another.
class TwoHosts : public Interrupted, public ::testing::WithParamInterface<Numerics> {
 protected:
  TwoHosts() : Interrupted(GetParam()) {
    for (const char* host : {"a", "b"}) std::filesystem::create_directories(directory(host));
  }
  std::vector<std::string> names_on(FileSystem& host) {
    const auto names = host.list(run_ + "/checkpoints");
    return names ? *names : std::vector<std::string>();
  }
  Attempt attempt(int epoch) { return small_attempt(plain_, run_, Epoch(epoch)); }

  const std::string run_ = directory("run");
  RootedFileSystem first_{directory("a")};
  RootedFileSystem second_{directory("b")};
  const FileSystemOf apart_ = [this](int rank) -> FileSystem& {
    return rank == 0 ? first_ : second_;
  };
};

TEST_P(TwoHosts, SaveAndResumeTogether) {
  run_whole();
  break_off(attempt(1), apart_);
  const std::string newest = run_ + "/checkpoints/step-00000008.e1";
  EXPECT_TRUE(first_.exists(newest + "/s0001.safetensors"));
  EXPECT_FALSE(second_.exists(newest)) << "the second keeps nothing of its own";
  Recorder again;
  const TrainOutcome outcome = must_run(attempt(2), again, nullptr, apart_);
  EXPECT_EQ(again.loss_bits(), losses_from(9));
  EXPECT_EQ(outcome.weights_xxh3, whole_.weights_xxh3);
}

TEST_P(TwoHosts, EachKeepsNoMoreThanItShould) {
  plain_.steps = 100;
  plain_.save_every = 2;
  std::string resumed_from;
  for (int epoch = 1; epoch <= 5; ++epoch) {
    SCOPED_TRACE("attempt " + std::to_string(epoch));
    Attempt next = attempt(epoch);
    next.job.checkpoint.keep = 2;
    Recorder recorder;
    const TrainOutcome outcome = must_run(
        next, recorder,
        [&](int rank, int64_t step, ControlWishes& wishes) -> Result<Unit> {
          if (rank == 0 && step == 4 * epoch - 1) wishes.stop = true;
          return Unit{};
        },
        apart_);
    EXPECT_THAT(names_on(first_), SizeIs(2));
    EXPECT_THAT(names_on(second_), SizeIs(std::min(epoch - 1, 2)));
    if (epoch > 1) {  // what this attempt began with is whole on both hosts' disks
      const auto copies = find_checkpoints(second_, run_ + "/checkpoints", nullptr);
      ASSERT_TRUE(copies);
      EXPECT_EQ(copies->front().directory, resumed_from);
    }
    resumed_from = outcome.checkpoint;
  }
}

TEST_P(TwoHosts, ADamagedBlockSendsBothToTheCheckpointBefore) {
  run_whole();
  break_off(attempt(1), apart_);
  flip_a_byte(directory("a") + run_ + "/checkpoints/step-00000008.e1/s0001.safetensors");
  Recorder again;
  const TrainOutcome outcome = must_run(attempt(2), again, nullptr, apart_);
  EXPECT_EQ(again.loss_bits(), losses_from(5));
  EXPECT_EQ(outcome.weights_xxh3, whole_.weights_xxh3);
  EXPECT_THAT(*set_aside_in(first_, run_ + "/checkpoints"), SizeIs(1));
  EXPECT_THAT(*set_aside_in(second_, run_ + "/checkpoints"), SizeIs(0));
}

TEST_P(TwoHosts, ADamagedCopyIsSetAsideThereAndFetchedAgain) {
  run_whole();
  break_off(attempt(1), apart_);
  break_off(attempt(2), apart_);
  flip_a_byte(directory("b") + run_ + "/checkpoints/step-00000008.e1/s0001.safetensors");
  Recorder again;
  must_run(attempt(3), again, nullptr, apart_);
  EXPECT_EQ(again.loss_bits(), losses_from(9));
  EXPECT_THAT(*set_aside_in(first_, run_ + "/checkpoints"), SizeIs(0));
  EXPECT_THAT(*set_aside_in(second_, run_ + "/checkpoints"), SizeIs(1));
  ASSERT_THAT(again.account(0).skipped, SizeIs(1));
  EXPECT_THAT(skipped_text(again.account(0).skipped[0]),
              StartsWith("the copy on host host of checkpoint of step 8 is damaged ("));
}

TEST_P(TwoHosts, TheSecondMayLoseItsDisk) {
  run_whole();
  break_off(attempt(1), apart_);
  std::filesystem::remove_all(directory("b"));
  Recorder again;
  must_run(attempt(2), again, nullptr, apart_);
  EXPECT_EQ(again.loss_bits(), losses_from(9));
}

TEST_P(TwoHosts, ThatTheFirstLostItsDiskIsNoBeginningAnew) {
  break_off(attempt(1), apart_);
  Recorder again;
  must_run(attempt(2), again, nullptr, apart_);
  std::filesystem::remove_all(directory("a"));
  const Error error = refusal(attempt(3), apart_);
  EXPECT_EQ(error.code, ErrorCode::kNotFound);
  EXPECT_THAT(error.message, AllOf(HasSubstr("no checkpoint in " + run_ + "/checkpoints on host"),
                                   HasSubstr("step-00000008.e1"), HasSubstr("copy it")));
}

TEST_P(TwoHosts, WithoutRoomForACopyNobodyTrains) {
  break_off(attempt(1), apart_);
  FaultFileSystem full;
  full.set_free_space(Bytes(1000));
  const Error error =
      refusal(attempt(2), [&](int rank) -> FileSystem& { return rank == 0 ? apart_(0) : full; });
  EXPECT_EQ(error.code, ErrorCode::kIo);
  EXPECT_THAT(error.message, AllOf(HasSubstr(run_ + "/checkpoints"), HasSubstr("1000 B are free")));
}

INSTANTIATE_TEST_SUITE_P(Numerics, TwoHosts, ::testing::Values(Numerics::kFast, Numerics::kExact),
                         [](const auto& tested) { return name_of(tested.param); });

}  // namespace
}  // namespace motley::testing
