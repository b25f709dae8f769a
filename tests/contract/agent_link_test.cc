// What an agent makes of the coordinator's answers.

#include "scheduler/agent/agent_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "core/clock.h"
#include "scheduler/service/http_server.h"
#include "tests/support/temporary_directory.h"

namespace motley {
namespace {

const auto always = [] { return true; };

/// A coordinator that answers every report so until it is told otherwise.
class AgentLinkTest : public ::testing::Test {
 protected:
  void SetUp() override {
    server_ =
        make_http_server(context_, [this](const HttpRequest& request, const HttpReply& reply) {
          if (request.path.ends_with("/orders"))
            return reply(error_response(404, {ErrorCode::kNotFound, "there are none", {}}));
          if (!request.path.ends_with("/report")) return reply(json_response({}));
          ++reports_;
          const Error error{code_, "no", {}};
          if (status_ != 200) return reply(error_response(status_, error));
          reply(json_response({{"attempts", nlohmann::json::array()},
                               {"received", nlohmann::json::object()},
                               {"unwanted", nlohmann::json::array()}}));
        });
    ASSERT_TRUE(server_->listen(directory_.path() + "/socket"));
    thread_ = std::thread([this] { context_.run(); });
  }
  void TearDown() override {
    boost::asio::post(context_, [this] { server_->stop(); });
    thread_.join();
  }
  bool comes(const std::function<bool()>& what) const {
    const Nanos end = steady_clock().now() + nanos_of_seconds(10);
    while (!what() && steady_clock().now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return what();
  }

  testing::TemporaryDirectory directory_;
  boost::asio::io_context context_;
  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
  std::atomic<int> status_{200}, reports_{0};
  std::atomic<ErrorCode> code_{ErrorCode::kNoDevice};
  const ServiceClient client_{{directory_.path() + "/socket", std::nullopt}};
  AgentLink link_{client_, {"a1", "session", {}, {}}};
};

TEST_F(AgentLinkTest, ACrowdedCoordinatorIsAskedAgain) {
  status_ = 503;
  ASSERT_TRUE(link_.join(always));
  link_.start();
  ASSERT_TRUE(comes([&] { return reports_ >= 3; }));
  EXPECT_FALSE(link_.take().refusal);
  const Nanos before = steady_clock().now();
  status_ = 200;
  EXPECT_TRUE(comes([&] { return link_.take().heard > before; }));
  link_.stop();
}

TEST_F(AgentLinkTest, ARefusalIsOne) {
  status_ = 409;
  code_ = ErrorCode::kNotPermitted;
  ASSERT_TRUE(link_.join(always));
  link_.start();
  pollfd woken{link_.wake_fd(), POLLIN, 0};
  ASSERT_EQ(::poll(&woken, 1, 10'000), 1);
  EXPECT_TRUE(link_.take().refusal);
  link_.stop();
}

/// Listens, and says nothing: as one that was stopped.
TEST(AgentLinkAlone, EndsBesideACoordinatorThatDoesNotAnswer) {
  testing::TemporaryDirectory directory;
  const std::string path = directory.path() + "/socket";
  boost::asio::io_context context;
  boost::asio::local::stream_protocol::acceptor silent(context, path);
  const ServiceClient client({path, std::nullopt});
  std::optional<AgentLink> link(std::in_place, client, NodeJoin{"a1", "session", {}, {}});
  link->start();
  auto first = silent.accept(), second = silent.accept();  // of both threads
  const Nanos before = steady_clock().now();
  EXPECT_FALSE(link->stop());
  EXPECT_LT(steady_clock().now() - before, nanos_of_seconds(5));
  silent.close();  // else they would wait for ever
  first.close();
  second.close();
  link.reset();
}

TEST(AgentLinkAlone, EndsAtOnceWithoutACoordinator) {
  testing::TemporaryDirectory directory;
  const ServiceClient client({directory.path() + "/socket", std::nullopt});
  AgentLink link(client, {"a1", "session", {}, {}});
  int tries = 0;
  EXPECT_FALSE(link.join([&] { return ++tries < 2; }));
  link.start();
  const Nanos before = steady_clock().now();
  EXPECT_TRUE(link.stop());
  EXPECT_LT(steady_clock().now() - before, nanos_of_seconds(1.5));
}

}  // namespace
}  // namespace motley
