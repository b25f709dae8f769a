// What the service does on a network port with clients that are slow, greedy, or somebody else.

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "core/clock.h"
#include "scheduler/launch/child_process.h"
#include "scheduler/service/http_server.h"
#include "scheduler/service/service_client.h"
#include "scheduler/service/tls_client.h"
#include "tests/support/temporary_directory.h"

namespace motley {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int64_t kDay = 86'400;

/// A connection without TLS.
class PlainClient {
 public:
  explicit PlainClient(uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  void send(const std::string& text) {
    EXPECT_GE(::send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL), 0);
  }
  /// Until the other side closes; at most five seconds.
  std::string receive() {
    std::string text;
    const Nanos end = steady_clock().now() + nanos_of_seconds(5);
    while (true) {
      pollfd watched{fd_.get(), POLLIN, 0};
      if (::poll(&watched, 1, poll_milliseconds(end)) <= 0) return text + "(no more came)";
      char piece[4096];
      const ssize_t size = ::recv(fd_.get(), piece, sizeof piece, 0);
      if (size <= 0) return text + "(closed)";
      text.append(piece, static_cast<size_t>(size));
    }
  }

 private:
  Fd fd_;
};

class OneEvent final : public EventSource {
 public:
  std::string next() override { return told_++ == 0 ? event_text_of("1", "x", "{}") : ""; }
  bool over() const override { return told_ > 1; }
  std::chrono::milliseconds patience() const override { return std::chrono::milliseconds(5); }

 private:
  int told_ = 0;
};

/// For ever.
class Ticks final : public EventSource {
 public:
  std::string next() override { return ": tick\n\n"; }
  bool over() const override { return false; }
  std::chrono::milliseconds patience() const override { return std::chrono::milliseconds(5); }
};

class TlsServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    HttpLimits limits;
    limits.handshake_time = limits.header_time = std::chrono::milliseconds(300);
    limits.idle_time = std::chrono::seconds(20);  // longer than anybody asks again
    limits.strangers = limits.strangers_of_peer = 4;
    limits.followers_of_peer = 1;
    server_ = make_http_server(
        context_,
        [](HttpRequest request, const HttpReply& reply) {
          HttpResponse response = json_response({{"path", request.path},
                                                 {"token", request.token},
                                                 {"peer", request.peer},
                                                 {"local", request.local}});
          if (!request.token.empty()) response.standing = Standing::kKnown;
          if (request.path == "/events") response.events = std::make_shared<OneEvent>();
          if (request.path == "/logs") {
            response.events = std::make_shared<Ticks>();
            response.standing = Standing::kFollower;
          }
          reply(std::move(response));
        },
        limits);
  }
  void TearDown() override {
    boost::asio::post(context_, [this] { server_->stop(); });
    if (thread_.joinable()) thread_.join();  // nothing keeps the context going
  }

  /// The first connection is shown the second certificate where the first one is `due`.
  void serve(const std::vector<std::string>& names, int64_t made = std::time(nullptr),
             bool due = false) {
    const std::string tls = directory_.path() + "/tls";
    TlsDoor door;
    door.at = here_;
    door.certificate = [=, asked = 0]() mutable {
      const bool first = asked++ == 0;
      auto shown = certificate_in(tls, first || !due ? names : kNames, made);
      if (shown) shown->renew_at = due ? 0 : INT64_MAX;
      return shown;
    };
    const auto port = server_->listen(std::move(door));
    ASSERT_TRUE(port) << port.error().message;
    here_.port = *port;
    fingerprint_ = certificate_in(tls, names, made)->fingerprint;
    thread_ = std::thread([this] { context_.run(); });
  }
  std::string authority() const {
    const auto fetched = fetch_authority(here_, fingerprint_);
    EXPECT_TRUE(fetched) << fetched.error().message;
    return fetched.value_or("");
  }
  /// What comes to `text` until the other side ends it.
  std::string told(const std::string& text) const {
    const auto connection = TlsConnection::open(here_, authority());
    EXPECT_TRUE(connection) << connection.error().message;
    boost::system::error_code error;
    boost::asio::write((*connection)->stream(), boost::asio::buffer(text), error);
    std::string answer;
    boost::asio::read((*connection)->stream(), boost::asio::dynamic_buffer(answer), error);
    return answer;
  }
  /// A connection that stays open, after the first line that it was answered with.
  std::unique_ptr<TlsConnection> asked(const std::string& target, const std::string& trusted,
                                       std::string* line) const {
    auto connection = TlsConnection::open(here_, trusted);
    EXPECT_TRUE(connection) << connection.error().message;
    if (!connection) return nullptr;
    boost::system::error_code error;
    boost::asio::write((*connection)->stream(),
                       boost::asio::buffer("GET " + target +
                                           " HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "
                                           "mtl_1_ab\r\n\r\n"),
                       error);
    boost::asio::read_until((*connection)->stream(), boost::asio::dynamic_buffer(*line), "\n",
                            error);
    *line = line->substr(0, line->find('\r'));
    return std::move(*connection);
  }
  Result<nlohmann::json> ask(const std::string& authority) const {
    return ServiceClient({"", Login{here_, authority, "mtl_1_ab"}}).get("/v1/jobs");
  }

  static inline const std::vector<std::string> kNames = {"localhost", "127.0.0.1"};
  testing::TemporaryDirectory directory_;
  Endpoint here_{"127.0.0.1", 0};
  std::string fingerprint_;
  boost::asio::io_context context_;
  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
};

TEST_F(TlsServerTest, AnswersThoseWhoKnowItsAuthority) {
  serve(kNames);
  const auto answer = ask(authority());
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ((*answer)["path"], "/v1/jobs");
  EXPECT_EQ((*answer)["token"], "mtl_1_ab");
  EXPECT_EQ((*answer)["peer"], "127.0.0.1");
  EXPECT_EQ((*answer)["local"], false);
}

TEST_F(TlsServerTest, EventsGoOnToTheirEnd) {
  serve(kNames);
  const std::string text = told("GET /events HTTP/1.1\r\nHost: localhost:7\r\n\r\n");
  EXPECT_THAT(text, HasSubstr("\r\n\r\nid: 1\nevent: x\ndata: {}\n\n"));
}

TEST_F(TlsServerTest, NothingIsAnsweredWithoutTls) {
  serve(kNames);
  PlainClient plain(here_.port);
  plain.send("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_THAT(plain.receive(), ::testing::Not(HasSubstr("HTTP")));
}

TEST_F(TlsServerTest, OlderTlsIsRefused) {
  serve(kNames);
  boost::asio::io_context context;
  boost::asio::ssl::context tls(boost::asio::ssl::context::tls_client);
  SSL_CTX_set_min_proto_version(tls.native_handle(), TLS1_VERSION);
  SSL_CTX_set_max_proto_version(tls.native_handle(), TLS1_1_VERSION);
  SSL_CTX_set_security_level(tls.native_handle(), 0);
  TlsConnection::Stream stream(context, tls);
  boost::system::error_code error;
  boost::beast::get_lowest_layer(stream).connect(
      {boost::asio::ip::address_v4::loopback(), here_.port}, error);
  ASSERT_FALSE(error);
  stream.handshake(boost::asio::ssl::stream_base::client, error);
  EXPECT_TRUE(error);
}

TEST_F(TlsServerTest, AnotherAuthorityIsNotBelieved) {
  serve(kNames);
  const std::string elsewhere = directory_.path() + "/elsewhere";
  const auto other = certificate_in(elsewhere, kNames, std::time(nullptr));
  const std::string& chain = other->chain;
  const std::string authority_there = chain.substr(chain.rfind("-----BEGIN"));
  const auto refused = ask(authority_there);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kNotPermitted);
  const auto fetched = fetch_authority(here_, other->fingerprint);
  ASSERT_FALSE(fetched);
  EXPECT_EQ(fetched.error().code, ErrorCode::kNotPermitted);
  EXPECT_THAT(fetched.error().message, HasSubstr(fingerprint_));
}

TEST_F(TlsServerTest, ItsNameAndTimeAreChecked) {
  serve({"localhost"});
  const auto refused = ask(authority());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kNotPermitted);
  EXPECT_THAT(refused.error().message, HasSubstr("--name 127.0.0.1"));
}

TEST_F(TlsServerTest, OneThatHasExpiredIsNotBelieved) {
  serve(kNames, std::time(nullptr) - 1000 * kDay);
  const auto refused = ask(authority());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kNotPermitted);
  EXPECT_THAT(refused.error().message, HasSubstr("not valid now"));
}

TEST_F(TlsServerTest, TheCertificateIsRenewedWhileItServes) {
  serve({"localhost"}, std::time(nullptr), true);
  EXPECT_TRUE(ask(authority()));  // the first one was for another name
}

TEST_F(TlsServerTest, LongHeadersAndOtherHostsAreRefused) {
  serve(kNames);
  EXPECT_THAT(told("GET / HTTP/1.1\r\nX: " + std::string(9000, 'x') + "\r\n\r\n"),
              StartsWith("HTTP/1.1 431"));
  const auto status_for = [&](const std::string& host) {
    return told("GET / HTTP/1.1\r\n" + host + "Connection: close\r\n\r\n").substr(9, 3);
  };
  EXPECT_EQ(status_for("Host: LOCALHOST:99\r\n"), "200");
  EXPECT_EQ(status_for("Host: evil.example\r\n"), "421");
  EXPECT_EQ(status_for("Host: localhost.evil.example\r\n"), "421");
  EXPECT_EQ(status_for("Host: [::1\r\n"), "421");
  EXPECT_EQ(status_for(""), "421");
}

TEST_F(TlsServerTest, SlowHandshakesAreClosed) {
  serve(kNames);
  PlainClient silent(here_.port), slow(here_.port);
  slow.send("\x16\x03\x01");
  EXPECT_EQ(silent.receive(), "(closed)");
  EXPECT_EQ(slow.receive(), "(closed)");
}

TEST_F(TlsServerTest, APeerHasSoManyConnections) {
  serve(kNames);
  const std::string trusted = authority();
  std::vector<std::unique_ptr<TlsConnection>> open;
  for (int i = 0; i < 4; ++i) {
    auto connection = TlsConnection::open(here_, trusted);
    ASSERT_TRUE(connection) << connection.error().message;
    open.push_back(std::move(*connection));
  }
  const auto refused = TlsConnection::open(here_, trusted);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kNoDevice);
  EXPECT_THAT(refused.error().message, HasSubstr("too many connections"));
}

TEST_F(TlsServerTest, WhoHasShownATokenIsNoStranger) {
  serve(kNames);
  const std::string trusted = authority();
  std::vector<std::unique_ptr<TlsConnection>> open;
  for (int i = 0; i < 10; ++i) {
    std::string line;
    open.push_back(asked("/v1/jobs", trusted, &line));
    EXPECT_EQ(line, "HTTP/1.1 200 OK") << i;
  }
  EXPECT_TRUE(ask(trusted));
}

TEST_F(TlsServerTest, WhoAsksAgainAndAgainIsNotShutOut) {
  serve(kNames);
  const std::string trusted = authority();
  const ServiceClient client({"", Login{here_, trusted, "mtl_1_ab"}});
  ServiceLine line(client);
  ASSERT_TRUE(line.post("/v1/nodes/n/report", "{}"));
  std::vector<std::unique_ptr<TlsConnection>> strangers;
  for (int i = 0; i < 4; ++i) {
    auto connection = TlsConnection::open(here_, trusted);
    ASSERT_TRUE(connection) << connection.error().message;
    strangers.push_back(std::move(*connection));
  }
  ASSERT_FALSE(TlsConnection::open(here_, trusted));
  for (int i = 0; i < 3; ++i) {
    const auto answer = line.post("/v1/nodes/n/report", "{}");
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_EQ((*answer)["token"], "mtl_1_ab");
  }
}

TEST_F(TlsServerTest, WhoLeavesFreesTheirPlaceAtOnce) {
  serve(kNames);
  const std::string trusted = authority();
  std::string line, refused;
  auto follower = asked("/logs", trusted, &line);
  EXPECT_EQ(line, "HTTP/1.1 200 OK");
  asked("/logs", trusted, &refused);
  EXPECT_EQ(refused, "HTTP/1.1 503 Service Unavailable");
  EXPECT_TRUE(ask(trusted));
  follower.reset();
  const Nanos before = steady_clock().now();
  do {
    line.clear();
    asked("/logs", trusted, &line);
  } while (line != "HTTP/1.1 200 OK" && seconds_of(steady_clock().now() - before) < 5);
  EXPECT_LT(seconds_of(steady_clock().now() - before), 1.0);
}

TEST_F(TlsServerTest, WhoIsTurnedAwayAsksAgain) {
  serve(kNames);
  const std::string trusted = authority();
  std::vector<std::unique_ptr<PlainClient>> silent;
  for (int i = 0; i < 4; ++i) silent.push_back(std::make_unique<PlainClient>(here_.port));
  const auto answer = ask(trusted);  // until their handshakes take too long
  EXPECT_TRUE(answer) << answer.error().message;
}

TEST_F(TlsServerTest, TheNetworkCannotShutOutTheSocket) {
  const std::string path = directory_.path() + "/socket";
  ASSERT_TRUE(server_->listen(path));
  serve(kNames);
  const std::string trusted = authority();
  std::vector<std::unique_ptr<TlsConnection>> open;
  for (int i = 0; i < 4; ++i) {
    auto connection = TlsConnection::open(here_, trusted);
    ASSERT_TRUE(connection) << connection.error().message;
    open.push_back(std::move(*connection));
  }
  const auto answer = ServiceClient({path, std::nullopt}).get("/v1/jobs");
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ((*answer)["local"], true);
}

/// Half an answer may look like a whole one.
TEST(ServiceClientTest, AnAnswerThatBreaksOffIsNone) {
  static const std::string kHalf = "HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n[1]";
  testing::TemporaryDirectory directory;
  const std::string path = directory.path() + "/socket";
  boost::asio::io_context context;
  using boost::asio::local::stream_protocol;
  stream_protocol::acceptor acceptor(context, stream_protocol::endpoint(path));
  std::thread server([&] {
    auto socket = acceptor.accept();
    std::string request;
    boost::asio::read_until(socket, boost::asio::dynamic_buffer(request), "\r\n\r\n");
    boost::asio::write(socket, boost::asio::buffer(kHalf));
  });
  const auto answer = ServiceClient({path, std::nullopt}).get("/v1/jobs");
  server.join();
  ASSERT_FALSE(answer) << answer->dump();
  EXPECT_EQ(answer.error().code, ErrorCode::kPeerLost);
}

TEST_F(TlsServerTest, NobodyThereIsToldApart) {
  serve(kNames);
  const std::string trusted = authority();
  here_.port = 1;
  const auto refused = ask(trusted);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kNoDevice);
  EXPECT_THAT(refused.error().message, HasSubstr("refused"));
}

}  // namespace
}  // namespace motley
