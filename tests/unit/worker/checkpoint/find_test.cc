// Finding checkpoints and removing old ones, when the directory is not as it should be.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "core/set_aside.h"
#include "tests/support/fault_file_system.h"
#include "tests/support/require.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/worker/checkpoint/saved_run.h"

namespace motley::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string path_of(const std::string& checkpoint, const std::string& file) {
  return kCheckpoints + "/" + checkpoint + "/" + file;
}

TEST(FindCheckpoints, WhereNothingWasSavedThereIsNone) {
  FaultFileSystem fs;
  EXPECT_THAT(found_in(fs), IsEmpty());
  ASSERT_TRUE(fs.make_directories(kCheckpoints));
  EXPECT_THAT(found_in(fs), IsEmpty());
}

TEST(FindCheckpoints, ANameThatIsNoDirectoryIsAnErrorNamingIt) {
  FaultFileSystem fs;
  ASSERT_TRUE(fs.make_directories(parent_directory(kCheckpoints)));
  ASSERT_TRUE(fs.create(kCheckpoints));
  const auto found = find_checkpoints(fs, kCheckpoints, nullptr);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, ErrorCode::kIo);
  EXPECT_THAT(found.error().message,
              AllOf(HasSubstr(kCheckpoints), HasSubstr("nothing is begun anew")));
}

/// Whatever operation fails and however: an error, or each checkpoint is found or named as suspect.
TEST(FindCheckpoints, NoFaultMakesACheckpointVanish) {
  FaultFileSystem fs;
  ASSERT_TRUE(save(fs, 10, Epoch(1)));
  ASSERT_TRUE(save(fs, 20, Epoch(1)));
  const int before = fs.operations();
  ASSERT_EQ(found_in(fs).size(), 2u);
  const int operations = fs.operations() - before;
  for (const Fault fault : {Fault::kIoError, Fault::kNoSpace, Fault::kShortWrite, Fault::kCrash}) {
    for (int operation = 0; operation < operations; ++operation) {
      const auto disk = fs.copy();
      disk->arm(operation, fault);
      std::vector<SuspectCheckpoint> suspects;
      const auto found = find_checkpoints(*disk, kCheckpoints, &suspects);
      if (found) {
        EXPECT_EQ(found->size() + suspects.size(), 2u) << "operation " << operation;
        for (const SuspectCheckpoint& suspect : suspects) {
          EXPECT_EQ(suspect.error.code, ErrorCode::kIo) << "not damaged";
          EXPECT_THAT(suspect.error.message, HasSubstr(kCheckpoints));
        }
      } else {
        EXPECT_EQ(found.error().code, ErrorCode::kIo);
        EXPECT_THAT(found.error().message, HasSubstr(kCheckpoints));
      }
    }
  }
  const auto disk = fs.copy();
  disk->arm(0, Fault::kIoError);
  EXPECT_FALSE(find_checkpoints(*disk, kCheckpoints, nullptr)) << "it could not be listed";
}

/// Runs `body` as a user to whom permissions apply. False when this user cannot.
bool as_another_user(const std::function<void()>& body) {
  constexpr uid_t kNobody = 65534;
  const uid_t before = geteuid();
  if (before == 0 && seteuid(kNobody) != 0) return false;
  body();
  EXPECT_EQ(seteuid(before), 0);
  return true;
}

TEST(FindCheckpoints, ADirectoryThatMayNotBeReadIsNotEmpty) {
  namespace disk = std::filesystem;
  const TemporaryDirectory directory;
  const std::string checkpoints = directory.path() + "/checkpoints";
  ASSERT_TRUE(real_file_system().make_directories(checkpoints + "/step-00000010.e1"));
  disk::permissions(directory.path(), disk::perms(0755));
  disk::permissions(checkpoints, disk::perms(0311));  // may be written and entered, not listed
  Result<std::vector<FoundCheckpoint>> found;
  const bool could =
      as_another_user([&] { found = find_checkpoints(real_file_system(), checkpoints, nullptr); });
  disk::permissions(checkpoints, disk::perms(0755));
  if (!could) MOTLEY_SKIP_WITHOUT("root", "no right to become another user");
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, ErrorCode::kIo);
  EXPECT_THAT(found.error().message,
              AllOf(HasSubstr("cannot list " + checkpoints), HasSubstr("Permission denied")));
}

TEST(FindCheckpoints, SuspectsAreNamedWithTheReason) {
  FaultFileSystem fs;
  ASSERT_TRUE(save(fs, 10, Epoch(1)));
  ASSERT_TRUE(save(fs, 20, Epoch(1)));
  fs.content(path_of("step-00000020.e1", "s0001.safetensors")).pop_back();
  fs.content(path_of("step-00000010.e1", "manifest.json"))[5] ^= std::byte{1};
  std::vector<SuspectCheckpoint> suspects;
  EXPECT_THAT(found_in(fs, &suspects), IsEmpty());
  std::vector<std::string> reasons;
  for (const SuspectCheckpoint& suspect : suspects) {
    EXPECT_EQ(suspect.error.code, ErrorCode::kCorrupt);
    reasons.push_back(suspect.error.message);
  }
  EXPECT_THAT(reasons, ElementsAre(AllOf(HasSubstr(kCheckpoints + "/step-00000020.e1: "),
                                         HasSubstr("s0001.safetensors has ")),
                                   AllOf(HasSubstr(kCheckpoints + "/step-00000010.e1: "),
                                         HasSubstr("its hash does not match"))));
}

/// As another version of Motley would have written it.
void change_version(FaultFileSystem& fs, const std::string& checkpoint, int version) {
  std::vector<std::byte>& bytes = fs.content(path_of(checkpoint, kManifestName));
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  auto manifest = manifest_from_text(text);
  ASSERT_TRUE(manifest);
  manifest->version = version;
  manifest->code_version = "9.9.9";
  const std::string later = to_text(*manifest);
  const auto written = std::as_bytes(std::span(later));
  bytes.assign(written.begin(), written.end());
}

TEST(FindCheckpoints, OneOfANewerProgramIsNotPassedOverForAnOlderOne) {
  FaultFileSystem fs;
  ASSERT_TRUE(save(fs, 10, Epoch(1)));
  ASSERT_TRUE(save(fs, 20, Epoch(1)));
  change_version(fs, "step-00000020.e1", kManifestVersion + 1);
  const auto found = find_checkpoints(fs, kCheckpoints, nullptr);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(found.error().message, AllOf(HasSubstr("/step-00000020.e1: written by Motley 9.9.9"),
                                           HasSubstr("this is one of version 3; use the newer")));
  // Whoever names the older one, or has trained on since, gets it.
  EXPECT_TRUE(open_checkpoint(fs, kCheckpoints, "step-00000010.e1"));
  ASSERT_TRUE(save(fs, 15, Epoch(2)));
  EXPECT_EQ(found_in(fs).size(), 2u);
  EXPECT_TRUE(fs.exists(kCheckpoints + "/step-00000020.e1"));
}

TEST(FindCheckpoints, OneOfAnOlderProgramIsRefusedAndNoSuspect) {
  FaultFileSystem fs;
  ASSERT_TRUE(save(fs, 10, Epoch(1)));
  change_version(fs, "step-00000010.e1", kManifestVersion - 1);
  std::vector<SuspectCheckpoint> suspects;
  const auto found = find_checkpoints(fs, kCheckpoints, &suspects);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, ErrorCode::kUnsupported);
  EXPECT_FALSE(is_suspect(found.error()));
  EXPECT_THAT(suspects, IsEmpty());
  EXPECT_THAT(found.error().message,
              AllOf(HasSubstr("/step-00000010.e1: written by Motley 9.9.9"),
                    HasSubstr("this is one of version 1; use the program that wrote it")));
}

TEST(FindCheckpoints, OpensOneByItsName) {
  FaultFileSystem fs;
  ASSERT_TRUE(save(fs, 10, Epoch(1)));
  const auto opened = open_checkpoint(fs, kCheckpoints, "step-00000010.e1");
  ASSERT_TRUE(opened);
  EXPECT_EQ(opened->manifest.step, 10);
  for (const char* other : {"step-00000011.e1", "../checkpoints/step-00000010.e1", "newer", ""})
    EXPECT_EQ(open_checkpoint(fs, kCheckpoints, other).error().code, ErrorCode::kNotFound) << other;
}

TEST(Retain, WhatIsSetAsideIsNeitherFoundNorCountedNorRemoved) {
  FaultFileSystem fs;
  for (const int64_t step : {10, 20, 30}) ASSERT_TRUE(save(fs, step, Epoch(1), 9));
  EXPECT_EQ(*set_aside(fs, kCheckpoints, "step-00000030.e1", "a block is wrong"),
            ".suspect-step-00000030.e1");
  ASSERT_TRUE(retain(fs, kCheckpoints, 2, Epoch(5)));
  EXPECT_THAT(*fs.list(kCheckpoints),
              ElementsAre(".suspect-step-00000030.e1", "step-00000010.e1", "step-00000020.e1"));
  EXPECT_EQ(found_in(fs).size(), 2u);
  const auto aside = *set_aside_in(fs, kCheckpoints);
  ASSERT_EQ(aside.size(), 1u);
  EXPECT_EQ(aside[0].step, 30);
  EXPECT_EQ(aside[0].why, "a block is wrong");
}

TEST(Retain, TwoAtOnceInOneDirectoryRemoveTheSame) {
  const auto begin = [] {
    auto fs = std::make_unique<FaultFileSystem>();
    for (int64_t step = 10; step <= 50; step += 10) EXPECT_TRUE(save(*fs, step, Epoch(1), 9));
    EXPECT_TRUE(fs->make_directories(kCheckpoints + "/.trash-step-00000005.e1/inner"));
    EXPECT_TRUE(fs->make_directories(kCheckpoints + "/.tmp-step-00000007.e1"));
    return fs;
  };
  bool done = false;
  for (int operation = 0; !done; ++operation) {
    SCOPED_TRACE("the second before operation " + std::to_string(operation) + " of the first");
    const auto fs = begin();
    int count = 0;
    done = true;
    fs->on_operation([&](const std::string&) {
      if (count++ != operation) return;
      done = false;
      EXPECT_TRUE(retain(*fs, kCheckpoints, 2, Epoch(2)));
    });
    const auto retained = retain(*fs, kCheckpoints, 2, Epoch(2));
    EXPECT_TRUE(retained) << retained.error().to_string();
    EXPECT_THAT(*fs->list(kCheckpoints), ElementsAre("step-00000040.e1", "step-00000050.e1"));
    for (const FoundCheckpoint& kept : found_in(*fs)) EXPECT_EQ(holds_its_step(*fs, kept), true);
  }
}

TEST(Retain, TwoHostsThatShareADiskDoNoHarm) {
  const TemporaryDirectory directory;
  FileSystem& fs = real_file_system();
  for (int round = 0; round < 5; ++round) {
    for (int file = 0; file < 60; ++file) {
      const std::string trash =
          directory.path() + "/.trash-" + checkpoint_directory_name(file % 6, Epoch(1));
      std::filesystem::create_directories(trash);
      std::ofstream(trash + "/" + std::to_string(file)) << "x";
    }
    Result<Unit> first = Unit{}, second = Unit{};
    std::thread other([&] { second = retain(fs, directory.path(), 2, Epoch(1)); });
    first = retain(fs, directory.path(), 2, Epoch(1));
    other.join();
    EXPECT_TRUE(first) << first.error().to_string();
    EXPECT_TRUE(second) << second.error().to_string();
    ASSERT_TRUE(retain(fs, directory.path(), 2, Epoch(1)));
    EXPECT_THAT(*fs.list(directory.path()), IsEmpty());
  }
}

}  // namespace
}  // namespace motley::testing
