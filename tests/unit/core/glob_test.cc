#include "core/spec/glob.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace motley {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class Glob : public ::testing::Test {
 protected:
  Glob() : root_(fs::path(::testing::TempDir()) / ("motley_glob_" + std::to_string(getpid()))) {
    for (const char* file : {"a.txt", "b.txt", "c.md", ".hidden.txt", "docs/d.txt",
                             "docs/deep/e.txt", ".git/f.txt", "docs/deep/er/g.md"}) {
      fs::create_directories((root_ / file).parent_path());
      std::ofstream(root_ / file) << file;
    }
    fs::create_directories(root_ / "folder.txt");
    fs::create_directory_symlink(root_ / "docs", root_ / "link");
  }
  ~Glob() override { fs::remove_all(root_); }

  std::vector<std::string> found(const std::string& pattern, const std::string& from = "") {
    const auto files = expand_glob((root_ / from).string(), pattern);
    std::vector<std::string> names;
    for (const std::string& file : *files)
      names.push_back(fs::path(file).lexically_relative(root_).string());
    return names;
  }

  fs::path root_;
};

TEST_F(Glob, MatchesFilesOfOneFolder) {
  EXPECT_THAT(found("*.txt"), ElementsAre("a.txt", "b.txt"));
  EXPECT_THAT(found("[ab].*"), ElementsAre("a.txt", "b.txt"));
  EXPECT_THAT(found("?.md"), ElementsAre("c.md"));
  EXPECT_THAT(found("c.md"), ElementsAre("c.md"));
  EXPECT_THAT(found(".h*"), ElementsAre(".hidden.txt"));
  EXPECT_THAT(found("missing*"), IsEmpty());
  EXPECT_THAT(found("docs"), IsEmpty());  // a folder is no file
}

TEST_F(Glob, TwoStarsReachAnyDepthButNothingHiddenOrLinked) {
  EXPECT_THAT(found("**/*.txt"), ElementsAre("a.txt", "b.txt", "docs/d.txt", "docs/deep/e.txt"));
  EXPECT_THAT(found("docs/**"), ElementsAre("docs/d.txt", "docs/deep/e.txt", "docs/deep/er/g.md"));
  EXPECT_THAT(found("**/deep/**/*.md"), ElementsAre("docs/deep/er/g.md"));
  EXPECT_THAT(found("**/**/g.md"), ElementsAre("docs/deep/er/g.md"));
  EXPECT_THAT(found("link/*.txt"), ElementsAre("link/d.txt"));  // named, so entered
}

TEST_F(Glob, RelativeAndAbsolutePatterns) {
  EXPECT_THAT(found("../../a.txt", "docs/deep"), ElementsAre("a.txt"));
  EXPECT_THAT(found((root_ / "c.md").string()), ElementsAre("c.md"));
}

TEST(NameMatches, EndsQuicklyWhateverThePattern) {
  EXPECT_TRUE(name_matches("*", "anything"));
  EXPECT_TRUE(name_matches("a*c", "abbbc"));
  EXPECT_TRUE(name_matches("[!a-c]x", "dx"));
  EXPECT_TRUE(name_matches("[]]", "]"));
  EXPECT_TRUE(name_matches("[", "["));
  EXPECT_FALSE(name_matches("[!a-c]x", "bx"));
  EXPECT_FALSE(name_matches("", "a"));
  EXPECT_FALSE(name_matches("*", ".profile"));
  std::string stars;
  for (int i = 0; i < 200; ++i) stars += "*a";
  EXPECT_FALSE(name_matches(stars + "b", std::string(4000, 'a')));
}

}  // namespace
}  // namespace motley
