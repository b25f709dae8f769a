// Checkpoints between two file systems that share nothing.

#include "worker/checkpoint/transfer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/fault_file_system.h"
#include "tests/unit/worker/checkpoint/saved_run.h"

namespace motley::testing {
namespace {

using ::testing::ElementsAre;

TEST(CheckpointTransfer, AStreamedShardIsCommittedWithTheLocalOne) {
  FaultFileSystem launching, remote;
  SmallState state;
  state.fill(10);
  const auto writer_on = [&](FileSystem& fs, int rank) {
    return *ShardWriter::create(fs, kCheckpoints, Epoch(1), rank, state.views(),
                                SmallState::owners());
  };
  const auto local = writer_on(launching, 0), distant = writer_on(remote, 1);
  for (const auto* writer : {&local, &distant}) {
    ASSERT_TRUE((*writer)->snapshot(10));
    (*writer)->wait();
  }
  const auto bytes = distant->shard_bytes();
  const std::vector<ShardReport> reports{local->report(), distant->report()};

  std::vector<std::byte> spoilt(bytes.begin(), bytes.end());
  spoilt[spoilt.size() / 2] ^= std::byte{1};
  for (const auto& wrong : {std::span<const std::byte>(spoilt), bytes.first(bytes.size() - 1)}) {
    const auto refused = write_received_shard(launching, kCheckpoints, reports[1], wrong);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kCorrupt);
  }
  const auto written = write_received_shard(launching, kCheckpoints, reports[1], bytes);
  ASSERT_TRUE(written) << written.error().to_string();

  Manifest base;
  base.step = 10;
  base.epoch = Epoch(1);
  ASSERT_TRUE(commit(launching, kCheckpoints, base, reports));
  const auto found = find_checkpoints(launching, kCheckpoints, nullptr);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(holds_its_step(launching, found[0]), true);

  ASSERT_TRUE(abandon(remote, kCheckpoints, 10, Epoch(1)));
  EXPECT_THAT(*remote.list(kCheckpoints), ElementsAre());
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
    const auto found = find_checkpoints(*disk, kCheckpoints, nullptr);
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
      std::vector<std::string> suspects;
      const auto found = find_checkpoints(*disk, kCheckpoints, &suspects);
      EXPECT_TRUE(suspects.empty());
      EXPECT_TRUE(!done || found.size() == 1u);
      for (const auto& checkpoint : found) EXPECT_EQ(holds_its_step(*disk, checkpoint), true);
      ASSERT_TRUE(!found.empty() || replicate(*disk, 1000)) << "cannot be done again";
    }
  }
}

TEST_F(CheckpointReplication, RefusesNamesThatAreNotOurs) {
  FaultFileSystem to;
  EXPECT_FALSE(CheckpointImport::begin(to, kCheckpoints, "../step-00000020.e3"));
  const auto import = CheckpointImport::begin(to, kCheckpoints, name_);
  ASSERT_TRUE(import);
  EXPECT_FALSE((*import)->append("../../x", {}));
  EXPECT_FALSE((*import)->append("s1.safetensors", {}));
  EXPECT_FALSE((*import)->finish()) << "nothing was received";
}

}  // namespace
}  // namespace motley::testing
