#include "worker/bridge/script_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "core/set_aside.h"
#include "tests/support/fault_file_system.h"

namespace motley::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string kPlace = "/runs/script/1/checkpoints";
const std::string kHeader =
    R"({"__metadata__":{"format":"pt"},"optimizer/step":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
    R"("script":{"dtype":"U8","shape":[3],"data_offsets":[4,7]}})";

std::string shard(const std::string& header, const std::string& data) {
  std::string text(8, '\0');
  const uint64_t length = header.size();
  std::memcpy(text.data(), &length, sizeof length);
  return text + header + data;
}

std::string path_of(const std::string& checkpoint) { return kPlace + "/" + checkpoint; }

/// What a script does, and then has done.
Result<std::string> save(FaultFileSystem& fs, const std::string& name, const std::string& content,
                         int keep = 2) {
  const std::string temporary = path_of(".tmp-" + name);
  MOTLEY_TRY_VOID(fs.make_directories(temporary));
  MOTLEY_TRY(const auto file, fs.create(temporary + "/s0000.safetensors"));
  MOTLEY_TRY_VOID(file->append(std::as_bytes(std::span(content))));
  MOTLEY_TRY_VOID(file->sync());
  MOTLEY_TRY_VOID(file->close());
  Manifest base;
  base.job = "script";
  base.next_sample = 320;
  return commit_script(fs, temporary, base, keep, [](const std::string&) {});
}

Result<std::string> save(FaultFileSystem& fs, const std::string& name) {
  return save(fs, name, shard(kHeader, "1234abc"));
}

struct Newest {
  Result<std::string> path;
  std::vector<std::string> told = {};
};

Newest newest(FaultFileSystem& fs) {
  std::vector<std::string> told;
  auto path = newest_whole(fs, kPlace, [&](const std::string& line) { told.push_back(line); });
  return {std::move(path), std::move(told)};
}

TEST(ScriptCheckpoint, HasTheManifestOfAnyOther) {
  FaultFileSystem fs;
  EXPECT_EQ(newest(fs).path, "");
  EXPECT_EQ(save(fs, "step-00000010.e3"), path_of("step-00000010.e3"));
  const auto text = read_text(fs, path_of("step-00000010.e3/manifest.json"), Bytes(1 << 20));
  const auto manifest = manifest_from_text(text.value_or(""));
  ASSERT_TRUE(manifest) << manifest.error().message;
  EXPECT_EQ(manifest->step, 10);
  EXPECT_EQ(manifest->epoch, Epoch(3));
  EXPECT_EQ(manifest->next_sample, 320);
  ASSERT_EQ(manifest->tensors.size(), 2U);
  EXPECT_EQ(manifest->tensors[1].dtype, "U8");
  EXPECT_EQ(newest(fs).path, path_of("step-00000010.e3"));
}

TEST(ScriptCheckpoint, KeepsTheNewestOnes) {
  FaultFileSystem fs;
  for (const char* name : {"step-00000010.e1", "step-00000020.e1", "step-00000015.e2"})
    ASSERT_TRUE(save(fs, name));
  EXPECT_THAT(*fs.list(kPlace), ElementsAre("step-00000015.e2", "step-00000020.e1"));
  EXPECT_EQ(newest(fs).path, path_of("step-00000015.e2")) << "of the later attempt";
  const auto late = save(fs, "step-00000025.e1");
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ErrorCode::kNotPermitted) << "an attempt that is over";
}

TEST(ScriptCheckpoint, IsTakenOnlyWhereEveryByteIsWhatItWas) {
  FaultFileSystem whole;
  ASSERT_TRUE(save(whole, "step-00000010.e1"));
  ASSERT_TRUE(save(whole, "step-00000020.e1"));
  for (const char* file : {"manifest.json", "s0000.safetensors"}) {
    const std::string path = path_of(std::string("step-00000020.e1/") + file);
    for (size_t at = 0; at < whole.content(path).size(); ++at) {
      const auto fs = whole.copy();
      fs->content(path)[at] ^= std::byte{1};
      const Newest found = newest(*fs);
      EXPECT_EQ(found.path, path_of("step-00000010.e1")) << file << " at " << at;
      EXPECT_THAT(found.told, ElementsAre(HasSubstr("trying an older checkpoint")));
      EXPECT_EQ(set_aside_in(*fs, kPlace)->size(), 1U);
      EXPECT_THAT(newest(*fs).told, IsEmpty()) << "it is not tried again";
    }
  }
}

TEST(ScriptCheckpoint, WhereNoneIsWholeNothingBeginsAnew) {
  FaultFileSystem fs;
  ASSERT_TRUE(save(fs, "step-00000010.e1"));
  fs.content(path_of("step-00000010.e1/s0000.safetensors")).pop_back();
  for (int time = 0; time < 2; ++time) {
    const Newest found = newest(fs);
    ASSERT_FALSE(found.path);
    EXPECT_EQ(found.path.error().code, ErrorCode::kCorrupt);
    EXPECT_THAT(found.path.error().message, HasSubstr("begin anew with --fresh"));
  }
}

TEST(ScriptCheckpoint, AnyFaultLeavesTheOldOneOrTheNewOne) {
  FaultFileSystem begun;
  ASSERT_TRUE(save(begun, "step-00000010.e1"));
  const auto counted = begun.copy();
  ASSERT_TRUE(save(*counted, "step-00000020.e1"));
  for (int operation = 0; operation < counted->operations(); ++operation) {
    for (const Fault fault : {Fault::kIoError, Fault::kNoSpace, Fault::kCrash}) {
      const auto fs = begun.copy();
      fs->arm(operation, fault);
      const bool saved = save(*fs, "step-00000020.e1").has_value();
      fs->disarm();
      for (uint64_t seed = 0; seed < (fault == Fault::kCrash ? 6 : 2); ++seed) {
        const auto found = newest(*fs->after_power_cut(seed)).path;
        ASSERT_TRUE(found) << "operation " << operation << ": " << found.error().message;
        EXPECT_TRUE(*found == path_of("step-00000020.e1") ||
                    (!saved && *found == path_of("step-00000010.e1")))
            << "operation " << operation << ": " << *found;
      }
    }
  }
}

TEST(ScriptCheckpoint, RefusesWhatIsNoStateAndLeavesNothing) {
  const std::string other_header =
      R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[%]}})";
  const auto with = [&](const std::string& offsets) {
    std::string header = other_header;
    return shard(header.replace(header.find('%'), 1, offsets), "12345678abcd");
  };
  ASSERT_TRUE(save(*std::make_unique<FaultFileSystem>(), "step-00000010.e1", with("8,12")));
  for (const std::string& content : {
           std::string("short"),
           std::string(8, '\xff') + "{}",
           shard("[1]", ""),
           shard("{\"a\":1}", "1234"),
           shard("nothing", ""),
           with("4,8"),
           with("12,16"),
           with("8,8"),
           with("12,8"),
           with("-4,0"),
           with("8"),
           with("8,12") + "more",
           shard(R"({"a":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}})", "1"),
           shard(R"({"a b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "1"),
           shard(R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", "1"),
       }) {
    FaultFileSystem fs;
    const auto saved = save(fs, "step-00000010.e1", content);
    EXPECT_FALSE(saved) << content;
    EXPECT_THAT(*fs.list(kPlace), IsEmpty()) << content;
  }
  FaultFileSystem fs;
  EXPECT_EQ(commit_script(fs, kPlace + "/step-00000010.e1", {}, 2, nullptr).error().code,
            ErrorCode::kUsage);
}

}  // namespace
}  // namespace motley::testing
