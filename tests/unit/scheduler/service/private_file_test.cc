#include "scheduler/service/private_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <thread>

#include "core/file_system.h"
#include "tests/support/temporary_directory.h"

namespace motley {
namespace {

TEST(PrivateFile, WritersAtOnceEndWithOneOfTheirTexts) {
  const testing::TemporaryDirectory directory;
  const std::string path = directory.path() + "/secret";
  std::vector<std::thread> writers;
  std::vector<Result<Unit>> done(4, Unit{});
  for (size_t i = 0; i < done.size(); ++i)
    writers.emplace_back([&, i] {
      const std::string text(10'000, static_cast<char>('a' + i));
      for (int round = 0; round < 20 && done[i]; ++round) done[i] = write_private_file(path, text);
    });
  for (std::thread& writer : writers) writer.join();
  for (const auto& written : done) EXPECT_TRUE(written) << written.error().message;
  const auto text = read_text(real_file_system(), path, Bytes(1 << 20));
  ASSERT_TRUE(text);
  EXPECT_EQ(text->size(), 10'000u);
  EXPECT_EQ(text->find_first_not_of(text->front()), std::string::npos) << "two of them, mixed";
  EXPECT_THAT(*real_file_system().list(directory.path()), ::testing::ElementsAre("secret"));
}

TEST(PrivateFile, IsItsOwnersAlone) {
  const testing::TemporaryDirectory directory;
  ASSERT_TRUE(write_private_file(directory.path() + "/secret", "x"));
  struct stat status {};
  ASSERT_EQ(::stat((directory.path() + "/secret").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  EXPECT_EQ(write_private_file(directory.path() + "/none/secret", "x").error().code,
            ErrorCode::kIo);
}

}  // namespace
}  // namespace motley
