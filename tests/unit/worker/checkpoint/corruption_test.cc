// Whatever happens to the bytes of a committed checkpoint is found, and the older one is taken.

#include <gtest/gtest.h>

#include <random>

#include "tests/support/fault_file_system.h"
#include "tests/unit/worker/checkpoint/saved_run.h"

namespace motley::testing {
namespace {

using Random = std::mt19937_64;

const std::string kOld = "step-00000010.e1";
const std::string kNew = "step-00000020.e1";
const std::vector<std::string> kFiles{"s0000.safetensors", "s0001.safetensors", "manifest.json"};

std::string path_of(const std::string& checkpoint, const std::string& file) {
  return kCheckpoints + "/" + checkpoint + "/" + file;
}

/// As a run resumes: newest first, until one loads. Returns its step.
int64_t step_resumed(FileSystem& fs) {
  for (const FoundCheckpoint& found : found_in(fs)) {
    const auto holds = holds_its_step(fs, found);
    if (!holds) {
      EXPECT_EQ(holds.error().code, ErrorCode::kCorrupt) << holds.error().to_string();
      continue;
    }
    EXPECT_TRUE(*holds) << "a spoilt checkpoint loaded";
    return found.manifest.step;
  }
  return -1;
}

class CheckpointCorruption : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(save(fs_, 10, Epoch(1)));
    ASSERT_TRUE(save(fs_, 20, Epoch(1)));
    ASSERT_EQ(step_resumed(fs_), 20);
  }
  std::vector<std::byte>& file(size_t which) { return fs_.content(path_of(kNew, kFiles[which])); }

  FaultFileSystem fs_;
};

TEST_F(CheckpointCorruption, EveryFlippedBitIsFound) {
  Random random(1);
  for (int flip = 0; flip < 10'000; ++flip) {
    std::vector<std::byte>& bytes = file(random() % kFiles.size());
    std::byte& byte = bytes[random() % bytes.size()];
    const std::byte before = byte;
    byte ^= std::byte{1} << static_cast<int>(random() % 8);
    ASSERT_EQ(step_resumed(fs_), 10) << "flip " << flip;
    byte = before;
  }
  EXPECT_EQ(step_resumed(fs_), 20);
}

TEST_F(CheckpointCorruption, EveryTruncationAndExtensionIsFound) {
  Random random(2);
  for (int cut = 0; cut < 500; ++cut) {
    std::vector<std::byte>& bytes = file(random() % kFiles.size());
    const std::vector<std::byte> before = bytes;
    bytes.resize(cut % 5 == 0 ? bytes.size() + 1 + random() % 100 : random() % bytes.size());
    ASSERT_EQ(step_resumed(fs_), 10) << "cut " << cut;
    bytes = before;
  }
  EXPECT_EQ(step_resumed(fs_), 20);
}

TEST_F(CheckpointCorruption, SwappedFilesAreFound) {
  for (size_t which = 0; which < kFiles.size(); ++which) {
    std::vector<std::byte>& old = fs_.content(path_of(kOld, kFiles[which]));
    const std::vector<std::byte> before = file(which);
    file(which) = old;  // a file of the older checkpoint in place of the new one
    ASSERT_EQ(step_resumed(fs_), 10) << kFiles[which];
    file(which) = before;
  }
  std::swap(file(0), file(1));
  ASSERT_EQ(step_resumed(fs_), 10);
}

TEST_F(CheckpointCorruption, AMissingFileIsFound) {
  for (const std::string& name : kFiles) {
    const auto disk = fs_.copy();
    ASSERT_TRUE(disk->remove_all(path_of(kNew, name)));
    EXPECT_EQ(step_resumed(*disk), 10) << name;
  }
}

TEST_F(CheckpointCorruption, TheMessageNamesFileAndBlock) {
  std::vector<std::byte>& bytes = file(1);
  bytes.back() ^= std::byte{1};
  const auto found = found_in(fs_);
  const auto loaded = holds_its_step(fs_, found.at(0));
  ASSERT_FALSE(loaded);
  EXPECT_NE(loaded.error().message.find(kNew + "/s0001.safetensors: block 0 of "),
            std::string::npos)
      << loaded.error().message;
}

TEST_F(CheckpointCorruption, AnUnreadableBlockIsNotLoadedNorCalledDamaged) {
  const auto found = found_in(fs_);
  const int before = fs_.operations();
  ASSERT_TRUE(holds_its_step(fs_, found.at(0)));
  const int operations = fs_.operations() - before;
  for (int operation = 0; operation < operations; ++operation) {
    fs_.arm(fs_.operations() + operation, Fault::kIoError);
    const auto loaded = holds_its_step(fs_, found.at(0));
    ASSERT_FALSE(loaded);
    EXPECT_EQ(loaded.error().code, ErrorCode::kIo);
  }
}

}  // namespace
}  // namespace motley::testing
