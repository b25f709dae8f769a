// A rank's link against a runner of a few lines: real sockets, the frames of core/wire.

#include "worker/train/control_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <optional>

#include "core/clock.h"
#include "tests/support/temporary_directory.h"

namespace motley {
namespace {

constexpr int kPatienceMs = 10'000;

/// Listens, accepts one rank, reads its frames.
class TinyRunner {
 public:
  explicit TinyRunner(bool tcp) {
    if (tcp) {
      listen_tcp();
    } else {
      listen_unix();
    }
  }
  ~TinyRunner() {
    hang_up();
    close(listening_);
  }
  const std::string& address() const { return address_; }

  void accept_rank() {
    ASSERT_TRUE(readable(listening_));
    rank_ = accept(listening_, nullptr, nullptr);
    ASSERT_GE(rank_, 0);
    directory_.reset();  // also where the process then ends without a farewell
  }
  /// The next frame of `type`, others left out; nothing when the rank hung up or was silent too
  /// long.
  std::optional<Message> next(MessageType type) {
    while (true) {
      while (const auto message = reader_.next())
        if (message->type == type) return message;
      std::array<char, 4096> bytes;
      if (!readable(rank_)) return std::nullopt;
      const ssize_t n = recv(rank_, bytes.data(), bytes.size(), 0);
      if (n <= 0 || !reader_.feed(std::span(bytes).first(static_cast<size_t>(n))))
        return std::nullopt;
    }
  }
  void send_to_rank(MessageType type, Epoch epoch) {
    const std::string frame = encode({.type = type, .epoch = epoch, .payload = "{}"});
    ASSERT_EQ(send(rank_, frame.data(), frame.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(frame.size()));
  }
  void hang_up() {
    if (rank_ >= 0) close(rank_);
    rank_ = -1;
  }

 private:
  static bool readable(int fd) {
    pollfd polled{.fd = fd, .events = POLLIN, .revents = 0};
    return poll(&polled, 1, kPatienceMs) == 1;
  }
  void listen_unix() {
    const std::string path = directory_.emplace().path() + "/s";
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    std::strncpy(name.sun_path, path.c_str(), sizeof name.sun_path - 1);
    listening_ = socket(AF_UNIX, SOCK_STREAM, 0);
    address_ = "unix:" + path;
    EXPECT_EQ(bind(listening_, reinterpret_cast<sockaddr*>(&name), sizeof name), 0);
    EXPECT_EQ(listen(listening_, 1), 0);
  }
  void listen_tcp() {
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    listening_ = socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_EQ(bind(listening_, reinterpret_cast<sockaddr*>(&name), sizeof name), 0);
    EXPECT_EQ(listen(listening_, 1), 0);
    socklen_t size = sizeof name;
    EXPECT_EQ(getsockname(listening_, reinterpret_cast<sockaddr*>(&name), &size), 0);
    address_ = "tcp:127.0.0.1:" + std::to_string(ntohs(name.sin_port));
  }

  std::optional<testing::TemporaryDirectory> directory_;  ///< until somebody has connected
  std::string address_;
  int listening_ = -1;
  int rank_ = -1;
  FrameReader reader_;
};

void wait_for(const std::atomic<bool>& flag) {
  const Nanos until = steady_clock().now() + nanos_of_seconds(kPatienceMs / 1000.0);
  while (!flag && steady_clock().now() < until)
    steady_clock().sleep_until(steady_clock().now() + nanos_of_seconds(0.001));
}

Hello hello() { return {.rank = 3, .host = "a1", .pid = 4711, .key = "secret"}; }

class Link : public ::testing::TestWithParam<bool> {
 protected:
  Link() : runner_(GetParam()) {}

  void join() {
    auto link = ControlLink::connect(runner_.address(), Epoch(5), hello(), &wishes_);
    ASSERT_TRUE(link.has_value()) << link.error().to_string();
    link_ = std::move(*link);
    runner_.accept_rank();
  }

  TinyRunner runner_;
  ControlWishes wishes_;
  std::unique_ptr<ControlLink> link_;
};

TEST_P(Link, SaysHelloWithItsKeyFirst) {
  join();
  const auto message = runner_.next(MessageType::kHello);
  ASSERT_TRUE(message.has_value());
  EXPECT_EQ(message->epoch, Epoch(5));
  const auto said = hello_from_text(message->payload);
  ASSERT_TRUE(said.has_value());
  EXPECT_EQ(said->rank, 3);
  EXPECT_EQ(said->key, "secret");
}

TEST_P(Link, HeartbeatsCarryTheProgressWhateverTheRankDoes) {
  join();
  link_->progress();
  link_->progress();
  for (int beat = 0; beat < 2; ++beat) {
    const auto message = runner_.next(MessageType::kHeartbeat);
    ASSERT_TRUE(message.has_value());
    const auto heartbeat = heartbeat_from_text(message->payload);
    ASSERT_TRUE(heartbeat.has_value());
    EXPECT_LE(heartbeat->progress, 2);
    if (beat == 1) {
      EXPECT_EQ(heartbeat->progress, 2);
    }
  }
}

TEST_P(Link, WishesOfThisEpochAreHeardOthersAreNot) {
  join();
  runner_.send_to_rank(MessageType::kStop, Epoch(4));
  runner_.send_to_rank(MessageType::kCheckpoint, Epoch(5));
  wait_for(wishes_.checkpoint);
  EXPECT_TRUE(wishes_.checkpoint);
  EXPECT_FALSE(wishes_.stop);
  runner_.send_to_rank(MessageType::kStop, Epoch(5));
  wait_for(wishes_.stop);
  EXPECT_TRUE(wishes_.stop);
}

TEST_P(Link, AfterItsLastWordTheRunnerMayGo) {
  join();
  link_->send_done(
      {.rank = 3, .outcome = Outcome::kFinished, .message = "", .weights_xxh3 = "00ff"});
  const auto message = runner_.next(MessageType::kDone);
  ASSERT_TRUE(message.has_value());
  const auto done = done_report_from_text(message->payload);
  ASSERT_TRUE(done.has_value());
  EXPECT_EQ(done->outcome, Outcome::kFinished);
  runner_.hang_up();
  link_.reset();  // and this process is still here
}

INSTANTIATE_TEST_SUITE_P(Transport, Link, ::testing::Bool(),
                         [](const auto& instance) { return instance.param ? "Tcp" : "Unix"; });

TEST(LinkFailure, NobodyListens) {
  ControlWishes wishes;
  for (const char* address : {"unix:/nonexistent/s", "tcp:127.0.0.1:1", "carrier pigeon"}) {
    const auto link = ControlLink::connect(address, Epoch(1), hello(), &wishes);
    ASSERT_FALSE(link.has_value()) << address;
    EXPECT_EQ(link.error().code, ErrorCode::kPeerLost);
    EXPECT_THAT(link.error().message, ::testing::HasSubstr(address));
  }
}

TEST(LinkFailureDeathTest, ALostRunnerEndsTheProcessWithinTwoSeconds) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        TinyRunner runner(false);
        ControlWishes wishes;
        auto link = ControlLink::connect(runner.address(), Epoch(1), hello(), &wishes);
        runner.accept_rank();
        runner.hang_up();
        steady_clock().sleep_until(steady_clock().now() + nanos_of_seconds(2));
        _exit(99);
      },
      ::testing::ExitedWithCode(exit_code(ErrorCode::kPeerLost)), "the runner is gone");
}

}  // namespace
}  // namespace motley
