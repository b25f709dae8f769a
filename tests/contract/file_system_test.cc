// What every FileSystem does.

#include "core/file_system.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <random>
#include <system_error>

#include "tests/support/fault_file_system.h"
#include "tests/support/temporary_directory.h"

namespace motley::testing {
namespace {

using ::testing::ElementsAre;

/// A file system with an empty directory in it.
struct Place {
  virtual ~Place() = default;
  virtual FileSystem& fs() = 0;
  virtual std::string root() const = 0;
};

struct RealPlace final : Place {
  TemporaryDirectory directory;
  FileSystem& fs() override { return real_file_system(); }
  std::string root() const override { return directory.path(); }
};

struct MemoryPlace final : Place {
  FaultFileSystem memory;
  MemoryPlace() { EXPECT_TRUE(memory.make_directories("/root")); }
  FileSystem& fs() override { return memory; }
  std::string root() const override { return "/root"; }
};

struct Implementation {
  const char* name;
  std::unique_ptr<Place> (*make)();
};

class FileSystemContract : public ::testing::TestWithParam<Implementation> {
 protected:
  std::unique_ptr<Place> place_ = GetParam().make();
  FileSystem& fs_ = place_->fs();
  std::string root_ = place_->root();

  Result<Unit> write(const std::string& name, std::string_view text) {
    MOTLEY_TRY(const auto file, fs_.create(root_ + "/" + name));
    MOTLEY_TRY_VOID(file->append(std::as_bytes(std::span(text))));
    MOTLEY_TRY_VOID(file->sync());
    return file->close();
  }
  std::string text(const std::string& name) {
    const auto read = read_text(fs_, root_ + "/" + name, Bytes(1 << 20));
    return read ? *read : "error: " + read.error().to_string();
  }
  static ErrorCode code(const Result<Unit>& result) {
    EXPECT_FALSE(result);
    return result ? ErrorCode::kInternal : result.error().code;
  }
  template <class T>
  static Result<Unit> ignore_value(const Result<T>& result) {
    if (!result) return fail(result.error());
    return Unit{};
  }
};

TEST_P(FileSystemContract, ReadsWhatWasWritten) {
  ASSERT_TRUE(write("a", "hello"));
  EXPECT_EQ(text("a"), "hello");
  const auto file = fs_.open_within(root_, "a");
  ASSERT_TRUE(file);
  EXPECT_EQ((*file)->size(), Bytes(5));
  std::vector<std::byte> middle(3);
  ASSERT_TRUE((*file)->read_at(1, middle));
  EXPECT_EQ(static_cast<char>(middle[2]), 'l');
  EXPECT_EQ(code((*file)->read_at(3, middle)), ErrorCode::kCorrupt);
}

TEST_P(FileSystemContract, LargeAndUnevenWritesArriveInOrder) {
  std::mt19937 random(7);
  std::vector<std::byte> all;
  const auto file = fs_.create(root_ + "/large");
  ASSERT_TRUE(file);
  for (const size_t bytes : {1, 5'000'000, 4096, 0, 4 << 20, 3, 8 << 20, 777}) {
    std::vector<std::byte> piece(bytes);
    for (std::byte& byte : piece) byte = static_cast<std::byte>(random());
    ASSERT_TRUE((*file)->append(piece));
    all.insert(all.end(), piece.begin(), piece.end());
  }
  ASSERT_TRUE((*file)->sync());
  const std::byte last{42};
  ASSERT_TRUE((*file)->append({&last, 1}));  // and after a sync
  all.push_back(last);
  ASSERT_TRUE((*file)->close());
  const auto written = fs_.open(root_ + "/large");
  ASSERT_TRUE(written);
  std::vector<std::byte> back(all.size());
  ASSERT_EQ((*written)->size(), Bytes(static_cast<int64_t>(all.size())));
  ASSERT_TRUE((*written)->read_at(0, back));
  EXPECT_TRUE(back == all);
}

TEST_P(FileSystemContract, CreateReplacesNothing) {
  ASSERT_TRUE(write("a", "one"));
  EXPECT_EQ(code(write("a", "two")), ErrorCode::kIo);
  EXPECT_EQ(text("a"), "one");
  EXPECT_EQ(code(write("missing/a", "two")), ErrorCode::kNotFound);
}

TEST_P(FileSystemContract, MissingThingsAreNotFound) {
  EXPECT_EQ(code(ignore_value(fs_.open(root_ + "/a"))), ErrorCode::kNotFound);
  EXPECT_EQ(code(ignore_value(fs_.open_within(root_, "a"))), ErrorCode::kNotFound);
  EXPECT_EQ(code(ignore_value(fs_.list(root_ + "/a"))), ErrorCode::kNotFound);
  EXPECT_EQ(code(fs_.sync_directory(root_ + "/a")), ErrorCode::kNotFound);
  EXPECT_EQ(code(fs_.rename_over(root_ + "/a", root_ + "/b")), ErrorCode::kNotFound);
  EXPECT_FALSE(fs_.exists(root_ + "/a"));
  EXPECT_TRUE(fs_.remove_all(root_ + "/a"));
}

TEST_P(FileSystemContract, AFileOfADirectoryHasAPlainName) {
  ASSERT_TRUE(fs_.make_directories(root_ + "/inner"));
  ASSERT_TRUE(write("secret", "x"));
  for (const char* name : {"../secret", "..", ".", "", "/etc/passwd", "a/../../secret"})
    EXPECT_EQ(code(ignore_value(fs_.open_within(root_ + "/inner", name))), ErrorCode::kCorrupt);
  EXPECT_EQ(code(ignore_value(fs_.open(root_ + "/inner"))), ErrorCode::kIo) << "a directory";
}

TEST_P(FileSystemContract, MakesListsAndRemovesDirectories) {
  ASSERT_TRUE(fs_.make_directories(root_ + "/a/b/c"));
  ASSERT_TRUE(fs_.make_directories(root_ + "/a/b/c"));
  ASSERT_TRUE(write("a/z", "1"));
  ASSERT_TRUE(write("a/.hidden", "1"));
  EXPECT_THAT(*fs_.list(root_ + "/a"), ElementsAre(".hidden", "b", "z"));
  EXPECT_TRUE(fs_.sync_directory(root_ + "/a"));
  EXPECT_FALSE(fs_.make_directories(root_ + "/a/z/d")) << "a file is in the way";
  EXPECT_EQ(code(fs_.make_directories(root_ + "/a/z")), ErrorCode::kIo);
  EXPECT_EQ(code(ignore_value(fs_.list(root_ + "/a/z"))), ErrorCode::kIo) << "not 'nothing there'";
  ASSERT_TRUE(fs_.remove_all(root_ + "/a"));
  EXPECT_FALSE(fs_.exists(root_ + "/a"));
}

TEST_P(FileSystemContract, RenameNewReplacesNothing) {
  for (const char* name : {"a", "b"}) {
    ASSERT_TRUE(fs_.make_directories(root_ + "/" + name));
    ASSERT_TRUE(write(std::string(name) + "/who", name));
  }
  EXPECT_EQ(code(fs_.rename_new(root_ + "/a", root_ + "/b")), ErrorCode::kIo);
  EXPECT_EQ(text("b/who"), "b");
  ASSERT_TRUE(fs_.rename_new(root_ + "/a", root_ + "/c"));
  EXPECT_EQ(text("c/who"), "a");
  EXPECT_FALSE(fs_.exists(root_ + "/a"));
}

TEST_P(FileSystemContract, TextIsReplacedWhole) {
  const std::string path = root_ + "/job.json";
  ASSERT_TRUE(write_text_durably(fs_, path, "old"));
  ASSERT_TRUE(write("job.json.tmp", "left by a crash"));
  ASSERT_TRUE(write_text_durably(fs_, path, "new"));
  EXPECT_EQ(text("job.json"), "new");
  EXPECT_THAT(*fs_.list(root_), ElementsAre("job.json"));
  EXPECT_EQ(code(ignore_value(read_text(fs_, path, Bytes(2)))), ErrorCode::kInvalidSpec);
}

TEST_P(FileSystemContract, KnowsItsFreeSpace) {
  const auto bytes = fs_.free_space(root_);
  ASSERT_TRUE(bytes);
  EXPECT_GT(*bytes, Bytes(0));
}

INSTANTIATE_TEST_SUITE_P(Each, FileSystemContract,
                         ::testing::Values(Implementation{"real",
                                                          []() -> std::unique_ptr<Place> {
                                                            return std::make_unique<RealPlace>();
                                                          }},
                                           Implementation{"memory",
                                                          []() -> std::unique_ptr<Place> {
                                                            return std::make_unique<MemoryPlace>();
                                                          }}),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST(RealFileSystem, FollowsOnlyTheLinksOfTheUser) {
  const TemporaryDirectory directory;
  FileSystem& fs = real_file_system();
  const std::string root = directory.path();
  ASSERT_TRUE(fs.make_directories(root + "/real"));
  ASSERT_TRUE(write_text_durably(fs, root + "/real/file", "x"));
  std::filesystem::create_symlink("real", root + "/linked");
  std::filesystem::create_symlink("file", root + "/real/alias");
  EXPECT_TRUE(fs.open(root + "/linked/alias"));
  EXPECT_TRUE(fs.open_within(root + "/real", "file"));
  EXPECT_FALSE(fs.open_within(root + "/real", "alias"));
  EXPECT_FALSE(fs.open_within(root + "/linked", "file"));
  ASSERT_TRUE(fs.remove_all(root + "/linked"));
  EXPECT_TRUE(fs.exists(root + "/real/file"));
}

TEST(FileSystemError, SaysWhetherTheDiskIsFull) {
  for (const int reason : {ENOSPC, EDQUOT})
    EXPECT_TRUE(is_disk_full(
        {ErrorCode::kIo, "cannot write to /a: " + std::generic_category().message(reason), {}}));
  const auto other = real_file_system().make_directories("/dev/null/a");
  ASSERT_FALSE(other);
  EXPECT_FALSE(is_disk_full(other.error())) << other.error().message;
  EXPECT_FALSE(is_disk_full({ErrorCode::kUsage, "the disk is full", {}})) << "words of a user";
}

TEST(FaultFileSystem, APowerCutAtAnyOperationLeavesTheOldTextOrTheNew) {
  const std::string path = "/run/job.json";
  const auto begin = [&] {
    auto fs = std::make_unique<FaultFileSystem>();
    EXPECT_TRUE(fs->make_directories("/run"));
    EXPECT_TRUE(write_text_durably(*fs, path, "old"));
    return fs;
  };
  bool done = false;
  for (int operation = 0; !done; ++operation) {
    const auto fs = begin();
    fs->arm(fs->operations() + operation, Fault::kCrash);
    done = write_text_durably(*fs, path, "new").has_value();
    for (uint64_t seed = 0; seed < 16; ++seed) {
      const auto disk = fs->after_power_cut(seed);
      const auto text = read_text(*disk, path, Bytes(100));
      ASSERT_TRUE(text);
      EXPECT_TRUE(*text == "new" || (*text == "old" && !done)) << *text;
    }
  }
}

}  // namespace
}  // namespace motley::testing
