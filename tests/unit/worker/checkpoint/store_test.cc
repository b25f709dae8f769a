// Saving, finding and keeping checkpoints.

#include "worker/checkpoint/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <future>
#include <limits>
#include <numeric>

#include "tests/support/fault_file_system.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/worker/checkpoint/saved_run.h"

namespace motley::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> names(FileSystem& fs) { return *fs.list(kCheckpoints); }

std::vector<std::string> found_names(FileSystem& fs) {
  std::vector<std::string> directories;
  for (const auto& found : found_in(fs)) directories.push_back(found.directory);
  return directories;
}

/// One rank that owns a tensor of three and a half of the largest hash blocks.
struct LargeState {
  std::vector<float> values = std::vector<float>(7 * kMaxHashBlockBytes / 8);
  std::vector<int64_t> shape{static_cast<int64_t>(values.size())};

  LargeState() { std::iota(values.begin(), values.end(), 1.0f); }
  StateView view() {
    return {"weight/large", "F32", shape, whole(shape), std::as_writable_bytes(std::span(values))};
  }
  std::vector<Ownership> owners() const { return {{"large", whole(shape), Rank(0)}}; }
  Result<std::unique_ptr<ShardWriter>> writer(FileSystem& fs, const std::string& directory) {
    return ShardWriter::create(fs, directory, Epoch(1), 0, {view()}, owners());
  }
};

Manifest base_of(int64_t step) {
  Manifest base;
  base.step = step;
  base.epoch = Epoch(1);
  return base;
}

TEST(CheckpointStore, HoldsTheSnapshotWhateverTrainingDoesNext) {
  const TemporaryDirectory directory;
  const std::string checkpoints = directory.path() + "/run/checkpoints";
  FileSystem& fs = real_file_system();
  LargeState state;
  const std::vector<float> before = state.values;
  const auto writer = state.writer(fs, checkpoints);
  ASSERT_TRUE(writer) << writer.error().to_string();
  EXPECT_TRUE((*writer)->ready());
  ASSERT_TRUE((*writer)->snapshot(7));
  std::fill(state.values.begin(), state.values.end(), -1.0f);
  (*writer)->wait();
  EXPECT_FALSE((*writer)->ready());
  const auto report = shard_report_from_text(to_text((*writer)->report()));
  ASSERT_TRUE(report) << report.error().to_string();
  EXPECT_TRUE((*writer)->ready());

  const auto committed = commit(fs, checkpoints, base_of(7), {*report});
  ASSERT_TRUE(committed) << committed.error().to_string();
  const auto found = found_in(fs, nullptr, checkpoints);
  ASSERT_EQ(found.size(), 1u);
  const auto loaded = load(fs, checkpoints, found[0], {state.view()}, nullptr);
  ASSERT_TRUE(loaded) << loaded.error().to_string();
  EXPECT_EQ(state.values, before);
}

TEST(CheckpointStore, MemoryThatChangesBetweenSnapshotAndWriteIsNoticed) {
  FaultFileSystem fs;
  LargeState state;
  const auto writer = state.writer(fs, kCheckpoints);
  ASSERT_TRUE(writer);
  std::promise<void> spoilt;
  std::shared_future<void> is_spoilt(spoilt.get_future());
  fs.on_operation([&](const std::string& name) {
    if (name == "create") is_spoilt.wait();
  });
  ASSERT_TRUE((*writer)->snapshot(7));
  const auto bytes = (*writer)->shard_bytes();
  const_cast<std::byte&>(bytes[bytes.size() / 2]) ^= std::byte{16};
  spoilt.set_value();
  (*writer)->wait();
  const ShardReport report = (*writer)->report();
  EXPECT_FALSE(report.ok);
  EXPECT_THAT(report.error, HasSubstr("memory changed"));
  EXPECT_FALSE(commit(fs, kCheckpoints, base_of(7), {report}));
  EXPECT_THAT(names(fs), ElementsAre());
}

TEST(CheckpointStore, AStateThatIsNotFiniteIsNotSaved) {
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    FaultFileSystem fs;
    LargeState state;
    const auto writer = state.writer(fs, kCheckpoints);
    ASSERT_TRUE(writer);
    state.values.back() = bad;
    const auto taken = (*writer)->snapshot(7);
    ASSERT_FALSE(taken);
    EXPECT_EQ(taken.error().code, ErrorCode::kDiverged);
    ASSERT_TRUE((*writer)->written());
    const auto report = shard_report_from_text(to_text((*writer)->report()));
    ASSERT_TRUE(report) << report.error().to_string();
    EXPECT_FALSE(report->ok);
    EXPECT_FALSE(report->finite);
    EXPECT_THAT(report->error, HasSubstr("weight/large is not finite"));
    EXPECT_FALSE(commit(fs, kCheckpoints, base_of(7), {*report}));
    EXPECT_THAT(names(fs), ElementsAre());
    state.values.back() = std::numeric_limits<float>::max();
    EXPECT_TRUE((*writer)->snapshot(8)) << "nothing is wrong with the largest";
  }
}

TEST(CheckpointStore, DestroyingAWriterFinishesTheShard) {
  FaultFileSystem fs;
  LargeState state;
  auto writer = state.writer(fs, kCheckpoints);
  ASSERT_TRUE(writer);
  ASSERT_TRUE((*writer)->snapshot(7));
  writer->reset();
  EXPECT_EQ(fs.content(kCheckpoints + "/.tmp-step-00000007.e1/s0000.safetensors").size() % 8, 0u);
}

TEST(CheckpointStore, AnOwnerMustHoldWhatItOwns) {
  FaultFileSystem fs;
  SmallState state;
  const auto writer =
      ShardWriter::create(fs, kCheckpoints, Epoch(1), 0, {state.views()[1]}, SmallState::owners());
  ASSERT_FALSE(writer);
  EXPECT_EQ(writer.error().code, ErrorCode::kInvalidSpec);
}

TEST(CheckpointStore, KeepsTheNewest) {
  FaultFileSystem fs;
  for (int64_t step = 10; step <= 50; step += 10) ASSERT_TRUE(save(fs, step, Epoch(1), 3));
  EXPECT_THAT(found_names(fs),
              ElementsAre("step-00000050.e1", "step-00000040.e1", "step-00000030.e1"));
  EXPECT_EQ(names(fs).size(), 3u);
}

TEST(CheckpointStore, TwoValidOnesAlwaysStay) {
  FaultFileSystem fs;
  for (int64_t step = 10; step <= 30; step += 10) ASSERT_TRUE(save(fs, step, Epoch(1), 3));
  fs.content(kCheckpoints + "/step-00000030.e1/manifest.json")[5] ^= std::byte{1};
  ASSERT_TRUE(retain(fs, kCheckpoints, 0, Epoch(1)));
  EXPECT_THAT(names(fs), ElementsAre("step-00000010.e1", "step-00000020.e1", "step-00000030.e1"));
  ASSERT_TRUE(save(fs, 40, Epoch(1), 1));
  EXPECT_THAT(names(fs), ElementsAre("step-00000020.e1", "step-00000030.e1", "step-00000040.e1"));
}

TEST(CheckpointStore, AnAttemptThatWentBackIsNewer) {
  FaultFileSystem fs;
  ASSERT_TRUE(save(fs, 100, Epoch(1)));
  ASSERT_TRUE(save(fs, 60, Epoch(2)));
  EXPECT_THAT(found_names(fs), ElementsAre("step-00000060.e2", "step-00000100.e1"));
}

TEST(CheckpointStore, RemovesLitterOfEarlierAttemptsOnly) {
  FaultFileSystem fs;
  ASSERT_TRUE(save(fs, 10, Epoch(2)));
  for (const char* name :
       {".tmp-step-00000020.e1", ".tmp-step-00000020.e2", ".tmp-step-00000020.e3",
        ".trash-step-00000005.e2", "notes", ".tmp-mine"})
    ASSERT_TRUE(fs.make_directories(kCheckpoints + "/" + name));
  ASSERT_TRUE(retain(fs, kCheckpoints, 2, Epoch(2)));
  EXPECT_THAT(names(fs), ElementsAre(".tmp-mine", ".tmp-step-00000020.e2", ".tmp-step-00000020.e3",
                                     "notes", "step-00000010.e2"));
}

TEST(CheckpointStore, AnAttemptThatIsOverCommitsNothing) {
  FaultFileSystem fs;
  ASSERT_TRUE(save(fs, 10, Epoch(1)));
  ASSERT_TRUE(save(fs, 20, Epoch(2)));
  const auto late = save(fs, 30, Epoch(1));
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ErrorCode::kNotPermitted);
  EXPECT_THAT(names(fs), ElementsAre("step-00000010.e1", "step-00000020.e2"));
}

TEST(CheckpointStore, ANameIsNeverTakenTwice) {
  FaultFileSystem fs;
  ASSERT_TRUE(save(fs, 10, Epoch(1)));
  ASSERT_FALSE(save(fs, 10, Epoch(1)));
  const auto found = found_in(fs);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(holds_its_step(fs, found[0]), true);
}

/// Reports of two ranks that would commit, spoilt by `spoil`.
Result<std::string> commit_spoilt(const std::function<void(std::vector<ShardReport>&)>& spoil) {
  FaultFileSystem fs;
  SmallState state;
  std::vector<ShardReport> reports;
  for (int rank = 0; rank < 2; ++rank) {
    auto writer =
        ShardWriter::create(fs, kCheckpoints, Epoch(1), rank, state.views(), SmallState::owners());
    EXPECT_TRUE((*writer)->snapshot(10));
    (*writer)->wait();
    reports.push_back((*writer)->report());
  }
  spoil(reports);
  auto committed = commit(fs, kCheckpoints, base_of(10), reports);
  EXPECT_EQ(names(fs).size(), committed ? 1u : 0u);
  return committed;
}

TEST(CheckpointStore, CommitsOnlyWhatIsComplete) {
  EXPECT_TRUE(commit_spoilt([](auto&) {}));
  EXPECT_TRUE(commit_spoilt([](auto& reports) { std::swap(reports[0], reports[1]); }));
  EXPECT_FALSE(commit_spoilt([](auto& reports) { reports.pop_back(); }));
  EXPECT_FALSE(commit_spoilt([](auto& reports) { reports[1] = reports[0]; }));
  EXPECT_FALSE(commit_spoilt([](auto& reports) { reports[1].rank = -1; }));
  EXPECT_FALSE(commit_spoilt([](auto& reports) { reports[1].ok = false; }));
  EXPECT_FALSE(commit_spoilt([](auto& reports) { reports[1].epoch = Epoch(2); }));
  EXPECT_FALSE(commit_spoilt([](auto& reports) { reports[1].step = 9; }));
  EXPECT_FALSE(commit_spoilt([](auto& reports) { reports[1].file.bytes += 8; }));
  EXPECT_FALSE(commit_spoilt([](auto& reports) { reports[1].file.name = "../x"; }));
  EXPECT_FALSE(commit_spoilt([](auto& reports) { reports[1].tensors.pop_back(); }));
  EXPECT_FALSE(commit_spoilt([](auto& reports) { reports[1].tensors[0].dtype = "F32"; }));
}

TEST(CheckpointStore, RefusesAnotherModel) {
  FaultFileSystem fs;
  ASSERT_TRUE(save(fs, 10, Epoch(1)));
  const auto found = found_in(fs);
  ASSERT_EQ(found.size(), 1u);
  SmallState state;
  std::vector<StateView> views = state.views();
  views[0].shape = {10, 6};
  views[0].slice = whole(views[0].shape);
  EXPECT_EQ(load(fs, kCheckpoints, found[0], views, nullptr).error().code, ErrorCode::kInvalidSpec);
  views = state.views();
  views[0].name = "adam_v/matrix";
  EXPECT_EQ(load(fs, kCheckpoints, found[0], views, nullptr).error().code, ErrorCode::kInvalidSpec);
}

}  // namespace
}  // namespace motley::testing
