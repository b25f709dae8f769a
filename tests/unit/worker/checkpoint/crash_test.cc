// Every operation of a save, failing in every way: afterwards a checkpoint loads bitwise, old or
// new, and nothing half-written is visible.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/fault_file_system.h"
#include "tests/support/random_cases.h"
#include "tests/unit/worker/checkpoint/saved_run.h"
#include "worker/checkpoint/directory.h"

namespace motley::testing {
namespace {

using ::testing::AnyOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

constexpr uint64_t kDiskStates = random_cases(12);  ///< for each operation

std::unique_ptr<FaultFileSystem> with_two_checkpoints() {
  auto fs = std::make_unique<FaultFileSystem>();
  EXPECT_TRUE(save(*fs, 10, Epoch(1)));
  EXPECT_TRUE(save(*fs, 20, Epoch(1)));
  return fs;
}

/// Both ranks see one directory, or the second one's shard is streamed to the first's.
struct Hosts {
  const char* name;
  Result<std::string> (*save)(FileSystem& fs, int64_t step, Epoch epoch);
};
constexpr Hosts kHosts[] = {
    {"OneHost", [](FileSystem& fs, int64_t step, Epoch epoch) { return save(fs, step, epoch); }},
    {"TwoHosts", save_from_two_hosts}};

int operations_of_a_save(const Hosts& hosts) {
  const auto fs = with_two_checkpoints();
  const int before = fs->operations();
  EXPECT_TRUE(hosts.save(*fs, 30, Epoch(1)));
  return fs->operations() - before;
}

/// What must hold of a disk whatever happened to the save of step 30 that followed 10 and 20.
void expect_sound(FaultFileSystem& disk, bool committed) {
  std::vector<SuspectCheckpoint> suspects;
  const auto found = found_in(disk, &suspects);
  EXPECT_THAT(suspects, IsEmpty()) << "something half-written is visible";
  ASSERT_GE(found.size(), 2u);
  EXPECT_THAT(found[0].manifest.step, AnyOf(20, 30));
  EXPECT_TRUE(!committed || found[0].manifest.step == 30) << "a confirmed commit is lost";
  for (const FoundCheckpoint& checkpoint : found) {
    const auto holds = holds_its_step(disk, checkpoint);
    ASSERT_TRUE(holds) << holds.error().to_string();
    EXPECT_TRUE(*holds) << checkpoint.directory;
  }
}

/// The next attempt saves and clears away what the last one left.
void expect_recovers(FaultFileSystem& disk) {
  const auto committed = save(disk, 40, Epoch(2));
  ASSERT_TRUE(committed) << committed.error().to_string();
  EXPECT_EQ(*committed, "step-00000040.e2");
  EXPECT_THAT(*disk.list(kCheckpoints), SizeIs(2));
  EXPECT_THAT(*disk.list(kCheckpoints), Each(StartsWith("step-")));
}

class CheckpointPowerCut : public ::testing::TestWithParam<Hosts> {};

TEST_P(CheckpointPowerCut, AtAnyOperationLeavesTheOldOrTheNew) {
  const int operations = operations_of_a_save(GetParam());
  ASSERT_GT(operations, 20);
  for (int operation = 0; operation < operations; ++operation) {
    const auto fs = with_two_checkpoints();
    fs->arm(fs->operations() + operation, Fault::kCrash);
    const bool committed = GetParam().save(*fs, 30, Epoch(1)).has_value();
    for (uint64_t seed = 0; seed < kDiskStates; ++seed) {
      SCOPED_TRACE("operation " + std::to_string(operation) + ", disk " + std::to_string(seed));
      const auto disk = fs->after_power_cut(seed);
      expect_sound(*disk, committed);
      expect_recovers(*disk);
      if (HasFailure()) return;
    }
  }
}

TEST_P(CheckpointPowerCut, AfterTheSaveLosesNothing) {
  for (uint64_t seed = 0; seed < kDiskStates; ++seed) {
    const auto fs = with_two_checkpoints();
    ASSERT_TRUE(GetParam().save(*fs, 30, Epoch(1)));
    expect_sound(*fs->after_power_cut(seed), true);
  }
}

INSTANTIATE_TEST_SUITE_P(Each, CheckpointPowerCut, ::testing::ValuesIn(kHosts),
                         [](const auto& tested) { return std::string(tested.param.name); });

class CheckpointFault : public ::testing::TestWithParam<std::tuple<Hosts, Fault>> {};

TEST_P(CheckpointFault, OfAnyOperationLeavesTheOldOrTheNew) {
  const auto& [hosts, fault] = GetParam();
  const int operations = operations_of_a_save(hosts);
  for (int operation = 0; operation < operations; ++operation) {
    SCOPED_TRACE("operation " + std::to_string(operation));
    const auto fs = with_two_checkpoints();
    fs->arm(fs->operations() + operation, fault);
    const bool committed = hosts.save(*fs, 30, Epoch(1)).has_value();
    fs->disarm();
    expect_sound(*fs, committed);
    expect_sound(*fs->after_power_cut(0), committed);
    // Training went on: the same attempt saves again.
    const auto later = hosts.save(*fs, 35, Epoch(1));
    ASSERT_TRUE(later) << later.error().to_string();
    expect_recovers(*fs);
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Each, CheckpointFault,
                         ::testing::Combine(::testing::ValuesIn(kHosts),
                                            ::testing::Values(Fault::kIoError, Fault::kNoSpace,
                                                              Fault::kShortWrite)));

TEST(CheckpointCrash, AFailedSaveLeavesNoFiles) {
  const auto fs = with_two_checkpoints();
  fs->set_free_space(Bytes(1000));
  const auto refused = save(*fs, 30, Epoch(1));
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, ::testing::HasSubstr("1000 B are free"));
  EXPECT_THAT(*fs->list(kCheckpoints), ElementsAre("step-00000010.e1", "step-00000020.e1"));
}

TEST(CheckpointRoom, ThatIsMissingIsAFullDisk) {
  FaultFileSystem fs;
  ASSERT_TRUE(fs.make_directories(kCheckpoints));
  fs.set_free_space(Bytes(1000));
  const auto room = check_room(fs, kCheckpoints, Bytes(1));
  ASSERT_FALSE(room);
  EXPECT_TRUE(is_disk_full(room.error())) << room.error().to_string();
}

}  // namespace
}  // namespace motley::testing
