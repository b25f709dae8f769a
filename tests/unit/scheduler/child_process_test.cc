#include "scheduler/launch/child_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/temporary_directory.h"

namespace motley {
namespace {

using ::testing::HasSubstr;

constexpr Nanos kLong(20'000'000'000);
const std::vector<std::string> kPath{"PATH=/usr/bin:/bin"};

std::string read_all(const Fd& fd) {
  std::string text;
  char buffer[256];
  for (ssize_t got; (got = ::read(fd.get(), buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<size_t>(got));
  return text;
}

/// What a shell says on its standard output until it has ended with status 0.
std::string said_by(const std::string& script, SpawnRequest request = {}) {
  auto pipe = make_pipe();
  EXPECT_TRUE(pipe);
  request.command = {"sh", "-c", script};
  request.environment = kPath;
  request.stdout_fd = pipe->write.get();
  auto child = ChildProcess::spawn(request);
  EXPECT_TRUE(child) << child.error().message;
  pipe->write.reset();
  std::string text = read_all(pipe->read);
  ExitStatus status;
  EXPECT_TRUE(child->wait(kLong, &status));
  EXPECT_TRUE(status.ok()) << status.to_string();
  return text;
}

/// Lines of a process's status file, by the kernel's names: masks of signals in hexadecimal.
std::string signals_of(const std::string& text, const std::string& name) {
  const size_t at = text.find(name + ":");
  return at == std::string::npos
             ? ""
             : text.substr(text.find_first_of("0123456789abcdef", at + name.size() + 1), 16);
}

TEST(ChildProcess, HasItsOwnEnvironmentAndNoInput) {
  EXPECT_EQ(said_by("echo \"$HOME-$PATH\"; cat"), "-/usr/bin:/bin\n");
}

TEST(ChildProcess, TellsHowItEnded) {
  for (const auto& [script, words] :
       {std::pair("exit 3", "status 3"), std::pair("kill -9 $$", "signal 9 (Killed)")}) {
    auto child = ChildProcess::spawn({.command = {"sh", "-c", script}, .environment = kPath});
    ASSERT_TRUE(child) << child.error().message;
    ExitStatus status;
    ASSERT_TRUE(child->wait(kLong, &status));
    EXPECT_EQ(status.to_string(), words);
    EXPECT_TRUE(child->ended(&status));
  }
}

TEST(ChildProcess, WhatCannotBeExecutedIsNotFound) {
  const auto none = ChildProcess::spawn({.command = {"no-such-program"}, .environment = kPath});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::kNotFound);
  // Executable, but neither a program nor a script of any interpreter that there is.
  const testing::TemporaryDirectory directory;
  const std::string path = directory.path() + "/broken";
  std::ofstream(path) << "#!/no/such/interpreter\n";
  ASSERT_EQ(::chmod(path.c_str(), 0700), 0);
  const auto broken = ChildProcess::spawn({.command = {path}, .environment = kPath});
  ASSERT_FALSE(broken);
  EXPECT_EQ(broken.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(broken.error().message, HasSubstr("No such file"));
}

TEST(ChildProcess, StartsWithoutOurSignalsAndLeavesThemAsTheyWere) {
  struct sigaction ours = {}, before = {}, after = {};
  ours.sa_handler = [](int) {};
  ASSERT_EQ(::sigaction(SIGUSR1, &ours, &before), 0);
  sigset_t blocked, mask;
  ::sigemptyset(&blocked);
  ::sigaddset(&blocked, SIGUSR2);
  ASSERT_EQ(::pthread_sigmask(SIG_BLOCK, &blocked, nullptr), 0);
  const std::string status = said_by("cat /proc/self/status");
  EXPECT_EQ(signals_of(status, "SigBlk"), std::string(16, '0'));
  EXPECT_EQ(signals_of(status, "SigCgt"), std::string(16, '0'));
  ASSERT_EQ(::pthread_sigmask(SIG_UNBLOCK, &blocked, &mask), 0);
  EXPECT_EQ(::sigismember(&mask, SIGUSR2), 1);
  EXPECT_EQ(::sigismember(&mask, SIGUSR1), 0);
  ASSERT_EQ(::sigaction(SIGUSR1, &before, &after), 0);
  EXPECT_EQ(after.sa_handler, ours.sa_handler);
}

TEST(ChildProcess, HasNoDescriptorOfOursButTheOneItIsToKeep) {
  auto kept = make_pipe();
  ASSERT_TRUE(kept);
  SpawnRequest request;
  request.kept_fd = kept->write.get();
  EXPECT_EQ(said_by("fd=3; while [ $fd -lt 256 ]; do [ -e /proc/$$/fd/$fd ] && echo $fd; "
                    "fd=$((fd + 1)); done; true",
                    request),
            std::to_string(kept->write.get()) + "\n");
}

TEST(ChildProcess, ThreadsStartTheirOwn) {
  std::vector<std::string> said(8);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < said.size(); ++i)
    threads.emplace_back([&said, i] {
      for (int times = 0; times < 10; ++times) said[i] += said_by("echo " + std::to_string(i));
    });
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < said.size(); ++i) {
    std::string expected;
    for (int times = 0; times < 10; ++times) expected += std::to_string(i) + "\n";
    EXPECT_EQ(said[i], expected);
  }
}

}  // namespace
}  // namespace motley
