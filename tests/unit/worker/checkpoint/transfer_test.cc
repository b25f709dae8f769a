// Checkpoints between two file systems that share nothing.

#include "worker/checkpoint/transfer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/support/fault_file_system.h"
#include "tests/unit/worker/checkpoint/saved_run.h"

namespace motley::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Sends `bytes` as a rank does, to a committer on `fs`.
Result<Unit> stream(FileSystem& fs, const ShardReport& report, std::span<const std::byte> bytes,
                    size_t chunk_bytes) {
  MOTLEY_TRY(const auto shard, receive_shard(fs, kCheckpoints, report));
  for (; !bytes.empty(); bytes = bytes.subspan(std::min(chunk_bytes, bytes.size())))
    MOTLEY_TRY_VOID(shard->append(bytes.first(std::min(chunk_bytes, bytes.size()))));
  return shard->finish();
}

/// Rank 1 on a host of its own, after a snapshot.
struct DistantRank {
  FaultFileSystem fs;
  SmallState state;
  std::unique_ptr<ShardWriter> writer;
  ShardReport report;

  explicit DistantRank(int64_t step) {
    state.fill(step);
    writer =
        *ShardWriter::create(fs, kCheckpoints, Epoch(1), 1, state.views(), SmallState::owners());
    EXPECT_TRUE(writer->snapshot(step));
    writer->wait();
    report = writer->report();
  }
  std::span<const std::byte> bytes() const { return writer->shard_bytes(); }
};

TEST(CheckpointTransfer, AStreamedShardIsCommittedWithTheLocalOne) {
  DistantRank distant(10);
  for (const size_t chunk_bytes : {size_t{1}, size_t{100}, kTransferChunkBytes}) {
    FaultFileSystem fs;
    SmallState state;
    state.fill(10);
    const auto local =
        *ShardWriter::create(fs, kCheckpoints, Epoch(1), 0, state.views(), SmallState::owners());
    ASSERT_TRUE(local->snapshot(10));
    local->wait();
    const auto streamed = stream(fs, distant.report, distant.bytes(), chunk_bytes);
    ASSERT_TRUE(streamed) << streamed.error().to_string();
    Manifest base;
    base.step = 10;
    base.epoch = Epoch(1);
    ASSERT_TRUE(commit(fs, kCheckpoints, base, {local->report(), distant.report}));
    const auto found = found_in(fs);
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(holds_its_step(fs, found[0]), true);
  }
  ASSERT_TRUE(abandon(distant.fs, kCheckpoints, 10, Epoch(1)));
  EXPECT_THAT(*distant.fs.list(kCheckpoints), ElementsAre());
}

TEST(CheckpointTransfer, AShardThatArrivesInAnotherFormIsNoticed) {
  DistantRank distant(10);
  const std::vector<std::byte> sent(distant.bytes().begin(), distant.bytes().end());
  const auto refused = [&](std::vector<std::byte> bytes, const ShardReport& report) {
    FaultFileSystem fs;
    const auto streamed = stream(fs, report, bytes, 100);
    EXPECT_FALSE(streamed);
    return !streamed && streamed.error().code == ErrorCode::kCorrupt;
  };
  for (size_t at = 0; at < sent.size(); ++at) {
    std::vector<std::byte> spoilt = sent;
    spoilt[at] ^= std::byte{1};
    EXPECT_TRUE(refused(spoilt, distant.report)) << "byte " << at;
  }
  std::vector<std::byte> other = sent;
  other.pop_back();
  EXPECT_TRUE(refused(other, distant.report)) << "too short";
  other.insert(other.end(), 2, sent.back());
  EXPECT_TRUE(refused(other, distant.report)) << "too long";
  ShardReport report = distant.report;
  report.file.name = "../s0001.safetensors";
  EXPECT_TRUE(refused(sent, report));
  report = distant.report;
  report.file.bytes += 8;
  EXPECT_TRUE(refused(sent, report));
  report = distant.report;
  report.tensors[0].slices[0].offset = INT64_MAX;
  EXPECT_TRUE(refused(sent, report));
  report = distant.report;
  report.tensors[0].slices[0].block_hashes.clear();
  EXPECT_TRUE(refused(sent, report));
}

TEST(CheckpointTransfer, ChunksNeedNotBeBlocks) {
  FaultFileSystem from, to;
  std::vector<float> values(3 * kMaxHashBlockBytes / 8);
  std::iota(values.begin(), values.end(), 1.0f);
  const std::vector<int64_t> shape{static_cast<int64_t>(values.size())};
  const auto writer = *ShardWriter::create(
      from, kCheckpoints, Epoch(1), 0,
      {{"weight/large", "F32", shape, whole(shape), std::as_writable_bytes(std::span(values))}},
      {{"large", whole(shape), Rank(0)}});
  ASSERT_TRUE(writer->snapshot(1));
  writer->wait();
  const ShardReport report = writer->report();
  const auto streamed = stream(to, report, writer->shard_bytes(), 3'000'000);
  ASSERT_TRUE(streamed) << streamed.error().to_string();
  const std::string path = kCheckpoints + "/.tmp-step-00000001.e1/s0000.safetensors";
  EXPECT_TRUE(to.content(path) == from.content(path));
}

class CheckpointReplication : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(save(from_, 20, Epoch(3))); }

  Result<Unit> replicate(FileSystem& to, size_t chunk_bytes) {
    MOTLEY_TRY(const auto import, CheckpointImport::begin(to, kCheckpoints, name_));
    MOTLEY_TRY_VOID(export_checkpoint(from_, kCheckpoints, name_, chunk_bytes,
                                      [&](std::string_view file, auto chunk) {
                                        EXPECT_LE(chunk.size(), chunk_bytes);
                                        return import->append(file, chunk);
                                      }));
    return import->finish();
  }

  const std::string name_ = "step-00000020.e3";
  FaultFileSystem from_;
};

TEST_F(CheckpointReplication, GivesTheSameCheckpointInAnyChunks) {
  for (const size_t chunk_bytes : {1, 100, 1 << 20}) {
    FaultFileSystem to;
    const auto done = replicate(to, chunk_bytes);
    ASSERT_TRUE(done) << done.error().to_string();
    const auto disk = to.after_power_cut(0);
    const auto found = found_in(*disk);
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(holds_its_step(*disk, found[0]), true);
  }
}

TEST_F(CheckpointReplication, IsVisibleOnlyWhenWhole) {
  FaultFileSystem probe;
  ASSERT_TRUE(replicate(probe, 1000));
  for (int operation = 0; operation < probe.operations(); ++operation) {
    FaultFileSystem to;
    to.arm(operation, Fault::kCrash);
    const bool done = replicate(to, 1000).has_value();
    for (uint64_t seed = 0; seed < 8; ++seed) {
      const auto disk = to.after_power_cut(seed);
      std::vector<SuspectCheckpoint> suspects;
      const auto found = found_in(*disk, &suspects);
      EXPECT_TRUE(suspects.empty());
      EXPECT_TRUE(!done || found.size() == 1u);
      for (const auto& checkpoint : found) EXPECT_EQ(holds_its_step(*disk, checkpoint), true);
      ASSERT_TRUE(!found.empty() || replicate(*disk, 1000)) << "cannot be done again";
    }
  }
}

TEST_F(CheckpointReplication, WhatFailsLeavesNothing) {
  FaultFileSystem probe;
  ASSERT_TRUE(replicate(probe, 1000));
  for (const Fault fault : {Fault::kIoError, Fault::kNoSpace, Fault::kShortWrite}) {
    for (int operation = 0; operation < probe.operations(); ++operation) {
      FaultFileSystem to;
      to.arm(operation, fault);
      const auto done = replicate(to, 1000);
      to.disarm();
      for (const auto& checkpoint : found_in(to)) EXPECT_EQ(holds_its_step(to, checkpoint), true);
      if (done) continue;
      EXPECT_THAT(done.error().message, HasSubstr(kCheckpoints));
      EXPECT_TRUE(replicate(to, 1000)) << "cannot be done again";
      EXPECT_THAT(*to.list(kCheckpoints), ElementsAre(name_));
    }
  }
}

TEST_F(CheckpointReplication, DamageOnTheWayIsNoticed) {
  int chunks = 0;
  const auto count = [&](std::string_view, auto) -> Result<Unit> {
    ++chunks;
    return Unit{};
  };
  ASSERT_TRUE(export_checkpoint(from_, kCheckpoints, name_, 64, count));
  for (int spoilt = 0; spoilt < chunks; ++spoilt) {
    FaultFileSystem to;
    int at = 0;
    const auto done = [&]() -> Result<Unit> {
      MOTLEY_TRY(const auto import, CheckpointImport::begin(to, kCheckpoints, name_));
      MOTLEY_TRY_VOID(
          export_checkpoint(from_, kCheckpoints, name_, 64, [&](std::string_view file, auto chunk) {
            std::vector<std::byte> sent(chunk.begin(), chunk.end());
            if (at++ == spoilt) sent[0] ^= std::byte{4};
            return import->append(file, sent);
          }));
      return import->finish();
    }();
    ASSERT_FALSE(done) << "chunk " << spoilt;
    EXPECT_EQ(done.error().code, ErrorCode::kCorrupt);
    EXPECT_THAT(*to.list(kCheckpoints), ElementsAre());
  }
}

TEST_F(CheckpointReplication, TakesThePlaceOfAnotherOfThatName) {
  FaultFileSystem to;
  ASSERT_TRUE(save(to, 20, Epoch(3)));
  to.content(kCheckpoints + "/" + name_ + "/manifest.json")[7] ^= std::byte{1};
  ASSERT_TRUE(replicate(to, 1000));
  const auto found = found_in(to);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(holds_its_step(to, found[0]), true);
  EXPECT_THAT(*to.list(kCheckpoints), ElementsAre(name_));
}

TEST_F(CheckpointReplication, BeginsOnlyWhereThereIsRoom) {
  FaultFileSystem to;
  to.set_free_space(Bytes(1000));
  const auto done = replicate(to, 1000);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, ErrorCode::kIo);
  EXPECT_THAT(done.error().message, HasSubstr("1000 B are free"));
  EXPECT_THAT(*to.list(kCheckpoints), ElementsAre());
}

TEST_F(CheckpointReplication, WhatCannotBeReadIsNotSent) {
  const int before = from_.operations();
  FaultFileSystem whole;
  ASSERT_TRUE(replicate(whole, 1000));
  const int operations = from_.operations() - before;
  for (int operation = 0; operation < operations; ++operation) {
    FaultFileSystem to;
    from_.arm(from_.operations() + operation, Fault::kIoError);
    const auto done = replicate(to, 1000);
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, ErrorCode::kIo) << "that may pass: it is not damaged";
  }
}

TEST_F(CheckpointReplication, RefusesNamesThatAreNotOurs) {
  FaultFileSystem to;
  EXPECT_FALSE(CheckpointImport::begin(to, kCheckpoints, "../step-00000020.e3"));
  const auto import = CheckpointImport::begin(to, kCheckpoints, name_);
  ASSERT_TRUE(import);
  const std::vector<std::byte> bytes(8);
  EXPECT_FALSE((*import)->append("../../x", bytes));
  EXPECT_FALSE((*import)->append("s0000.safetensors", bytes)) << "before the manifest";
  EXPECT_FALSE((*import)->finish()) << "nothing was received";
}

}  // namespace
}  // namespace motley::testing
