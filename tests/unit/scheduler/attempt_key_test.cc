#include "scheduler/runner/attempt_key.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/temporary_directory.h"

namespace motley {
namespace {

TEST(AttemptKey, IsAnotherEachTime) {
  const auto one = AttemptKey::generate();
  const auto two = AttemptKey::generate();
  ASSERT_TRUE(one && two);
  EXPECT_EQ(one->text().size(), 64u);
  EXPECT_NE(one->text(), two->text());
}

TEST(AttemptKey, MatchesItselfAlone) {
  const auto key = AttemptKey::generate();
  ASSERT_TRUE(key);
  EXPECT_TRUE(key->matches(key->text()));
  EXPECT_FALSE(key->matches(""));
  EXPECT_FALSE(key->matches(key->text() + "0"));
  EXPECT_FALSE(key->matches(key->text().substr(1)));
  std::string other = key->text();
  other.back() = other.back() == '0' ? '1' : '0';
  EXPECT_FALSE(key->matches(other));
}

TEST(AttemptKey, IsWrittenForItsOwnerAloneAndOnce) {
  const testing::TemporaryDirectory directory;
  const std::string path = directory.path() + "/key";
  const auto key = AttemptKey::generate();
  ASSERT_TRUE(key && key->write(path));
  std::string written;
  std::getline(std::ifstream(path), written);
  EXPECT_EQ(written, key->text());
  using std::filesystem::perms;
  EXPECT_EQ(std::filesystem::status(path).permissions(), perms::owner_read | perms::owner_write);
  EXPECT_FALSE(key->write(path)) << "somebody else's file was taken over";
}

}  // namespace
}  // namespace motley
