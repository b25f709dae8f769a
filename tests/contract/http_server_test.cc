// What a service's socket does with clients that are slow, greedy or speak something else.

#include "scheduler/service/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "scheduler/launch/child_process.h"
#include "scheduler/service/service_client.h"
#include "tests/support/require.h"
#include "tests/support/temporary_directory.h"

namespace motley {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class Client {
 public:
  explicit Client(const std::string& path) : fd_(::socket(AF_UNIX, SOCK_STREAM, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
    connected_ = ::connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  bool connected() const { return connected_; }

  Client& send(const std::string& text) {
    const ssize_t sent = ::send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL);
    EXPECT_TRUE(sent >= 0 || errno == EPIPE) << errno;  // who is turned away was not asked why
    return *this;
  }
  /// What comes until the connection is closed, or has this text; at most five seconds.
  std::string receive(const std::string& until = "") {
    std::string text;
    const Nanos end = steady_clock().now() + nanos_of_seconds(5);
    while (until.empty() || text.find(until) == std::string::npos) {
      pollfd watched{fd_.get(), POLLIN, 0};
      if (::poll(&watched, 1, poll_milliseconds(end)) <= 0) return text + "(no more came)";
      char piece[4096];
      const ssize_t size = ::recv(fd_.get(), piece, sizeof piece, 0);
      if (size <= 0) return text + "(closed)";
      text.append(piece, static_cast<size_t>(size));
    }
    return text;
  }

 private:
  Fd fd_;
  bool connected_ = false;
};

/// Tells two things and is over.
class TwoEvents final : public EventSource {
 public:
  std::string next() override { return told_++ < 2 ? event_text_of("1", "x", "{}") : ""; }
  bool over() const override { return told_ > 2; }
  std::chrono::milliseconds patience() const override { return std::chrono::milliseconds(5); }

 private:
  int told_ = 0;
};

/// Says that it is there, and then nothing for ever.
class Silence final : public EventSource {
 public:
  std::string next() override { return std::exchange(said_, true) ? "" : ": here\n\n"; }
  bool over() const override { return false; }
  std::chrono::milliseconds patience() const override { return std::chrono::hours(1); }

 private:
  bool said_ = false;
};

class HttpServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    HttpLimits limits;
    limits.header_time = limits.body_time = std::chrono::milliseconds(200);
    limits.idle_time = std::chrono::milliseconds(400);
    limits.known = 3;
    limits.followers_of_peer = kFollowers;
    server_ = make_http_server(
        context_,
        [](HttpRequest request, const HttpReply& reply) {
          HttpResponse response;
          response.type = "text/plain";
          response.body = request.method + " " + request.path + " " + request.body + "\n";
          if (request.path == "/json") response.body = "{}";
          response.standing = Standing::kKnown;
          if (request.path == "/events") response.events = std::make_shared<TwoEvents>();
          if (request.path == "/orders") response.events = std::make_shared<Silence>();
          if (request.path == "/logs") {
            response.events = std::make_shared<Silence>();
            response.standing = Standing::kFollower;
          }
          reply(std::move(response));
        },
        limits,
        [this](const HttpRequest& head) {
          ++asked_;
          std::optional<HttpResponse> refusal;
          if (head.path == "/closed")
            refusal = error_response(403, {ErrorCode::kNotPermitted, "no", {}});
          return refusal;
        });
    ASSERT_TRUE(server_->listen(path()));
    thread_ = std::thread([this] { context_.run(); });
  }
  void TearDown() override {
    boost::asio::post(context_, [this] { server_->stop(); });
    thread_.join();  // nothing keeps the context going
  }
  std::string path() const { return directory_.path() + "/socket"; }
  std::string answer_to(const std::string& target) const {
    return Client(path()).send("GET " + target + " HTTP/1.1\r\n\r\n").receive("\n");
  }
  /// Connections that follow: as many as there is room for.
  std::vector<std::unique_ptr<Client>> followers() const {
    std::vector<std::unique_ptr<Client>> all;
    for (int i = 0; i < kFollowers; ++i) {
      all.push_back(std::make_unique<Client>(path()));
      all.back()->send("GET /logs HTTP/1.1\r\n\r\n");
      EXPECT_THAT(all.back()->receive(": here"), StartsWith("HTTP/1.1 200")) << i;
    }
    return all;
  }

  static constexpr int kFollowers = 70;
  testing::TemporaryDirectory directory_;
  boost::asio::io_context context_;
  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
  std::atomic<int> asked_{0};  ///< heads that came before a body
};

TEST_F(HttpServerTest, AnswersOneAfterTheOtherOnOneConnection) {
  Client client(path());
  client.send(
      "GET /a HTTP/1.1\r\nHost: x\r\n\r\nPOST /b HTTP/1.1\r\nHost: x\r\nContent-Length: "
      "2\r\n\r\nhi");
  EXPECT_THAT(client.receive("POST /b hi\n"), HasSubstr("GET /a \n"));
  client.send("GET /c HTTP/1.1\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(client.receive(), HasSubstr("GET /c \n(closed)"));
}

TEST_F(HttpServerTest, InvitesABodyThatWaits) {
  Client client(path());
  client.send("POST /b HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_THAT(client.receive("\r\n\r\n"), StartsWith("HTTP/1.1 100"));
  client.send("hi");
  EXPECT_THAT(client.receive("POST /b hi\n"), StartsWith("HTTP/1.1 200"));
}

/// What it would have sent is not waited for, nor taken for another request.
TEST_F(HttpServerTest, WhoIsRefusedNeedNotSendTheBody) {
  Client client(path());
  client.send("POST /closed HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n");
  const std::string refused = client.receive("no\"}}");
  EXPECT_THAT(refused, StartsWith("HTTP/1.1 403"));
  EXPECT_THAT(refused, HasSubstr("Connection: close"));
  client.send("GET /a HTTP/1.1\r\n\r\n");
  EXPECT_THAT(client.receive(), ::testing::Not(HasSubstr("HTTP/1.1 200")));
  EXPECT_EQ(asked_, 1);
}

TEST_F(HttpServerTest, ARefusedChunkIsNotReadEither) {
  EXPECT_THAT(Client(path())
                  .send("POST /closed HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n")
                  .receive("no\"}}"),
              StartsWith("HTTP/1.1 403"));
}

TEST_F(HttpServerTest, WhoAsksBeforeTheyHaveABodySentIsAnsweredAtOnce) {
  EXPECT_THAT(
      Client(path())
          .send("POST /closed HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
          .receive("no\"}}"),
      StartsWith("HTTP/1.1 403"));
  EXPECT_THAT(Client(path())
                  .send("POST /b HTTP/1.1\r\nContent-Length: 2\r\nExpect: cake\r\n\r\n")
                  .receive(),
              StartsWith("HTTP/1.1 417"));
  // Without a body there is nothing to invite, and in HTTP/1.0 nobody waits for it.
  EXPECT_THAT(
      Client(path()).send("GET /a HTTP/1.1\r\nExpect: 100-continue\r\n\r\n").receive("GET /a \n"),
      StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(Client(path())
                  .send("POST /b HTTP/1.0\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\nhi")
                  .receive("POST /b hi\n"),
              StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpServerTest, SlowClientsAreClosed) {
  const Nanos before = steady_clock().now();
  EXPECT_EQ(Client(path()).send("GET / HTTP/1.1\r\nHost").receive(), "(closed)");
  EXPECT_EQ(Client(path()).send("POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nab").receive(),
            "(closed)");
  EXPECT_EQ(Client(path()).receive(), "(closed)");  // says nothing at all
  EXPECT_LT(seconds_of(steady_clock().now() - before), 4.0);
}

/// What is no part of the body would else be kept without end.
TEST_F(HttpServerTest, AChunkOfNoEndIsRefused) {
  Client client(path());
  client.send("POST /b HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;x=");
  for (int i = 0; i < 8; ++i) client.send(std::string(32 << 10, 'x'));
  EXPECT_THAT(client.receive("buffer"), StartsWith("HTTP/1.1 400"));
}

TEST_F(HttpServerTest, WhatIsNoRequestIsRefused) {
  EXPECT_THAT(Client(path()).send("hello\r\n\r\n").receive(), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(Client(path()).send("GET * HTTP/1.1\r\n\r\n").receive("malformed"),
              StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(Client(path()).send("POST / HTTP/1.1\r\nContent-Length: 9999999\r\n\r\n").receive(),
              StartsWith("HTTP/1.1 413"));
  EXPECT_THAT(
      Client(path()).send("GET / HTTP/1.1\r\nX: " + std::string(9000, 'x') + "\r\n\r\n").receive(),
      StartsWith("HTTP/1.1 431"));
}

TEST_F(HttpServerTest, ConnectionsAreLimited) {
  Client first(path()), second(path()), third(path());
  ASSERT_TRUE(third.connected());
  third.send("GET /a HTTP/1.1\r\n\r\n").receive("GET /a \n");
  const std::string refused = Client(path()).receive();
  EXPECT_THAT(refused, StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(refused, HasSubstr("Retry-After: 1\r\n"));
  EXPECT_THAT(refused, HasSubstr("\"code\":\"no_device\""));
  first.receive();  // it has been idle for too long
  EXPECT_THAT(Client(path()).send("GET /a HTTP/1.1\r\n\r\n").receive("GET /a \n"),
              StartsWith("HTTP/1.1 200"));
}

/// Nor do requests and what nodes follow take the place of people who do.
TEST_F(HttpServerTest, FollowersTakeNobodysPlace) {
  const auto open = followers();
  EXPECT_THAT(answer_to("/a"), StartsWith("HTTP/1.1 200"));
  Client node(path());
  EXPECT_THAT(node.send("GET /orders HTTP/1.1\r\n\r\n").receive(": here"),
              StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(answer_to("/a"), StartsWith("HTTP/1.1 200"));
  const std::string refused = Client(path()).send("GET /logs HTTP/1.1\r\n\r\n").receive("again");
  EXPECT_THAT(refused, StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(refused, HasSubstr("Retry-After: 1\r\n"));
  EXPECT_THAT(refused, HasSubstr("\"code\":\"no_device\""));
}

/// What they have said meanwhile is no matter.
TEST_F(HttpServerTest, WhoLeavesFreesTheirPlaceAtOnce) {
  auto open = followers();
  open.back()->send("GET /a HTTP/1.1\r\n\r\n" + std::string(10'000, 'x'));
  EXPECT_THAT(answer_to("/logs"), StartsWith("HTTP/1.1 503"));
  open.pop_back();
  const Nanos before = steady_clock().now();
  while (!answer_to("/logs").starts_with("HTTP/1.1 200") &&
         seconds_of(steady_clock().now() - before) < 5) {
  }
  EXPECT_LT(seconds_of(steady_clock().now() - before), 1.0);
}

TEST_F(HttpServerTest, WhoIsTurnedAwayAsksAgain) {
  std::vector<std::unique_ptr<Client>> nodes;
  for (int i = 0; i < 3; ++i) {
    nodes.push_back(std::make_unique<Client>(path()));
    nodes.back()->send("GET /orders HTTP/1.1\r\n\r\n").receive(": here");
  }
  std::thread leaves([&] {
    EXPECT_THAT(answer_to("/a"), StartsWith("HTTP/1.1 503"));
    nodes.pop_back();
  });
  const auto answer = ServiceClient({path(), std::nullopt}).get("/json");
  leaves.join();
  EXPECT_TRUE(answer) << answer.error().message;
}

TEST_F(HttpServerTest, WhoIsTurnedAwayForGoodIsTold) {
  const auto open = followers();
  const auto refused =
      ServiceClient({path(), std::nullopt}).follow("/logs", [](const auto&) { return true; });
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kNoDevice);
  EXPECT_THAT(refused.error().message, HasSubstr("try again"));
}

TEST(HttpLimitsTest, WhatADescriptorEachHasRoomFor) {
  for (const int descriptors : {1024, 4096, kEnoughDescriptors}) {
    const HttpLimits limits = limits_within(descriptors);
    EXPECT_LT(2 * limits.known + limits.strangers + limits.followers + limits.followers_of_peer,
              descriptors);
    EXPECT_GE(limits.strangers_of_peer, 64);
  }
  EXPECT_EQ(limits_within(kEnoughDescriptors).known, HttpLimits().known);
}

TEST_F(HttpServerTest, EventsGoOnToTheirEnd) {
  Client client(path());
  client.send("GET /events HTTP/1.1\r\n\r\n");
  const std::string text = client.receive();
  EXPECT_THAT(text, HasSubstr("Content-Type: text/event-stream"));
  EXPECT_THAT(text, HasSubstr("\r\n\r\nid: 1\nevent: x\ndata: {}\n\nid: 1\nevent: x\n"));
  EXPECT_THAT(text, HasSubstr("(closed)"));
}

TEST_F(HttpServerTest, TheSocketIsItsOwners) {
  struct stat status {};
  ASSERT_EQ(::stat(path().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  boost::asio::io_context other;
  const auto second = make_http_server(other, {}, {});
  const auto refused = second->listen(path());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kNotPermitted);
  EXPECT_EQ(second->listen("/" + std::string(200, 'x')).error().code, ErrorCode::kUsage);
}

/// Another user, for whom somebody has opened the socket, is told so and no more. In a process of
/// its own, which does nothing but system calls.
TEST_F(HttpServerTest, AnotherUserIsRefused) {
  if (::geteuid() != 0) MOTLEY_SKIP_WITHOUT("root", "nobody else can become another user");
  std::filesystem::permissions(directory_.path(), std::filesystem::perms::all);
  std::filesystem::permissions(path(), std::filesystem::perms::all);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path().c_str(), sizeof address.sun_path - 1);
  const pid_t child = ::fork();
  if (child == 0) {
    char answer[16] = "";
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    const bool heard = ::setuid(65534) == 0 &&
                       ::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
                       ::recv(fd, answer, 12, MSG_WAITALL) == 12;
    ::_exit(heard && std::memcmp(answer, "HTTP/1.1 403", 12) == 0 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(HttpServerTest, AnotherFileInItsPlaceIsKept) {
  const std::string file = directory_.path() + "/notes.txt";
  std::ofstream(file) << "mine";
  boost::asio::io_context other;
  const auto refused = make_http_server(other, {}, {})->listen(file);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUsage);
  std::string text;
  std::ifstream(file) >> text;
  EXPECT_EQ(text, "mine");
}

}  // namespace
}  // namespace motley
