// A training on a disk that fails at any operation, in any way: it goes on or ends with one line,
// and the next attempt comes to the same bits from no earlier than the last confirmed checkpoint.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/e2e/small_run.h"
#include "tests/support/fault_file_system.h"

namespace motley::testing {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kStepsBefore = 4;  ///< of the attempt before the one that meets the fault

class TrainingFault : public ::testing::TestWithParam<Fault> {
 protected:
  struct Ran {
    Result<TrainOutcome> outcome;
    std::map<int64_t, uint64_t> losses = {};
    int64_t saved = 0;  ///< newest step confirmed
  };

  /// An attempt, stopped after `stop_after`.
  Ran run(FaultFileSystem& fs, int epoch, int64_t stop_after = 0) {
    const ModelSpec model{
        .type = "gpt", .layers = 1, .heads = 2, .width = 16, .context = 16, .vocab = 256};
    const SmallRun small{.grains = {2, 1}, .model = model, .steps = 8, .save_every = 2};
    Attempt attempt = small_attempt(small, scratch_.path(), Epoch(epoch));
    attempt.job.checkpoint.keep = 2;
    Recorder recorder;
    const auto stop = [&](int, int64_t step, ControlWishes& wishes) -> Result<Unit> {
      if (step == stop_after - 1) wishes.stop = true;
      return Unit{};
    };
    Ran ran{run_small(attempt, recorder, stop, [&](int) -> FileSystem& { return fs; })};
    ran.losses = recorder.loss_bits();
    for (const SavedReport& report : recorder.account(0).saved) ran.saved = report.step;
    return ran;
  }
  /// A disk with an attempt's checkpoints of steps 2 and 4.
  std::unique_ptr<FaultFileSystem> begun() {
    auto fs = std::make_unique<FaultFileSystem>();
    EXPECT_EQ(run(*fs, 1, kStepsBefore).saved, kStepsBefore);
    return fs;
  }
  /// Every step that was computed gave the bits it gives without faults.
  void expect_same(const Ran& result) {
    for (const auto& [step, bits] : result.losses) EXPECT_EQ(bits, whole_.losses.at(step)) << step;
    ASSERT_FALSE(result.losses.empty() && result.outcome);
    if (!result.losses.empty()) {
      EXPECT_GT(result.losses.begin()->first, 1) << "begun anew over what was there";
    }
    if (result.outcome) {
      EXPECT_EQ(result.outcome->weights_xxh3, whole_.outcome->weights_xxh3);
    } else {
      EXPECT_THAT(result.outcome.error().message, HasSubstr(scratch_.path()));
    }
  }
  /// Without faults the next attempt ends the run.
  void expect_recovers(FaultFileSystem& fs, int64_t saved) {
    const Ran last = run(fs, 3);
    ASSERT_TRUE(last.outcome) << last.outcome.error().to_string();
    EXPECT_EQ(last.outcome->weights_xxh3, whole_.outcome->weights_xxh3);
    if (!last.losses.empty()) {
      EXPECT_GT(last.losses.begin()->first, saved) << "a confirmed checkpoint is lost";
    }
    for (const auto& [step, bits] : last.losses) EXPECT_EQ(bits, whole_.losses.at(step)) << step;
  }

  TemporaryDirectory scratch_;
  Ran whole_;
};

TEST_P(TrainingFault, OfAnyOperationCostsNoMoreThanACheckpoint) {
  FaultFileSystem untouched;
  whole_ = run(untouched, 1);
  ASSERT_TRUE(whole_.outcome);
  const auto fs = begun();
  const auto disk = fs->copy();
  ASSERT_TRUE(run(*disk, 2).outcome);
  const int operations = disk->operations();
  ASSERT_GT(operations, 50);
  for (int operation = 0; operation < operations; ++operation) {
    SCOPED_TRACE("operation " + std::to_string(operation));
    const auto faulty = fs->copy();
    faulty->arm(operation, GetParam());
    const Ran result = run(*faulty, 2);
    faulty->disarm();
    expect_same(result);
    const int64_t saved = std::max(kStepsBefore, result.saved);
    if (GetParam() == Fault::kCrash) {
      for (uint64_t seed = 0; seed < 2; ++seed)
        expect_recovers(*faulty->after_power_cut(seed), saved);
    } else {
      expect_recovers(*faulty, saved);
    }
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Each, TrainingFault,
                         ::testing::Values(Fault::kIoError, Fault::kNoSpace, Fault::kCrash));

}  // namespace
}  // namespace motley::testing
