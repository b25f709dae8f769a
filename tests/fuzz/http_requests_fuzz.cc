// What comes over a connection of the job service: the session, the routing and the answers, with
// everything behind them in memory. The first byte says who asks.

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/io_context.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>  // before Asio of Boost 1.74

#include "core/check.h"
#include "scheduler/service/api.h"
#include "scheduler/service/http_session.h"
#include "scheduler/service/node_json.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/scheduler/service/fake_service.h"

namespace motley::testing {
namespace {

using boost::asio::local::stream_protocol;

constexpr int64_t kNow = 1'000'000'000;

/// A service that has a job, a node and a token of each role.
class World {
 public:
  World()
      : service_(fleet_of({"a", "b"})),
        directory_(std::move(*ServiceDirectory::open(temporary_.path() + "/state"))),
        access_({service_.database(), service_.writer(), [] { return kNow; }, "ana"}),
        retention_({service_.coordinator(), service_.database(), service_.writer(), directory_,
                    service_.remover, [] { return kNow; }},
                   Nanos(0)),
        api_(service_.coordinator(), retention_, service_.database(), directory_, access_) {
    service_.come("n1", {"a"});
    (void)service_.submit(job_on(3));
    (void)service_.submit(job_on(1));
    for (const Role role : {Role::kViewer, Role::kUser, Role::kNode})
      access_.create(
          {"ana", role, "", {}, ""},
          [&](const Result<StoredToken>&, const std::string& token) { tokens_.push_back(token); });
    service_.run();
  }

  /// The answer as far as it comes at once.
  std::string ask(char who, std::string_view bytes) {
    who_ = who;
    std::array<int, 2> ends{};
    MOTLEY_CHECK_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    const Fd client(ends[0]);
    boost::asio::io_context context(1);
    const auto session = std::make_shared<HttpSession<UnixStream>>(
        state_, state_->known, "", stream_protocol::socket(context, stream_protocol(), ends[1]));
    session->start();
    (void)::send(client.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    ::shutdown(client.get(), SHUT_WR);
    context.poll();
    session->wake();
    context.poll();
    std::array<char, 4096> answer{};
    const ssize_t size = ::recv(client.get(), answer.data(), answer.size(), MSG_DONTWAIT);
    return {answer.data(), static_cast<size_t>(std::max<ssize_t>(0, size))};
  }

 private:
  HttpRequest as_asked(HttpRequest request) const {
    const size_t role = static_cast<size_t>(who_ - 'v');
    request.local = who_ == 'l';
    if (role < tokens_.size()) request.token = tokens_[role];
    return request;
  }

  TemporaryDirectory temporary_;
  FakeService service_;
  ServiceDirectory directory_;
  Access access_;
  Retention retention_;
  Api api_;
  std::vector<std::string> tokens_;
  std::shared_ptr<ServerState> state_ = std::make_shared<ServerState>(
      [this](HttpRequest request, const HttpReply& reply) {
        api_.handle(as_asked(std::move(request)), reply);
        service_.run();
      },
      [this](const HttpRequest& head) { return api_.refusal_of(as_asked(head)); }, HttpLimits());
  char who_ = 'l';
};

std::string request_text(const std::string& method, const std::string& target,
                         const std::string& body = "", const std::string& headers = "") {
  std::string text = method + " " + target + " HTTP/1.1\r\nHost: localhost\r\n" + headers;
  if (!body.empty()) text += "Content-Length: " + std::to_string(body.size()) + "\r\n";
  return text + "\r\n" + body;
}

std::vector<std::string> requests_with_bodies() {
  const std::string join = to_json(node_of_types("n1", {"a"})).dump();
  const std::string report = to_json(AgentReport{{"n1", "first", {}}, {}}).dump();
  nlohmann::json command = to_json(NodeCommand{"c1", {1, Epoch(1)}, "n1", "true", "", ""});
  command["key"] = "k";
  return {request_text("POST", "/v1/jobs?source=/job.yaml",
                       repository_text("configs/jobs/program.yaml"), "Idempotency-Key: k\r\n"),
          request_text("POST", "/v1/nodes/n1/join", join),
          request_text("POST", "/v1/nodes/n1/report", report),
          request_text("POST", "/v1/commands", command.dump()),
          request_text("POST", "/v1/tokens", R"({"role": "node", "node": "n1"})"),
          request_text("POST", "/v1/tokens", "{}", "Expect: 100-continue\r\n"),
          "POST /v1/tokens HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
          request_text("GET", "/v1/events?after=0", "", "Accept: text/event-stream\r\n"),
          request_text("GET", "/v1/jobs?state=unfinished&limit=5", "",
                       "Authorization: Bearer mtl_1_00\r\n")};
}

}  // namespace

/// Whatever is asked, nothing of ours is to blame.
void fuzz_one(std::string_view input) {
  constexpr int kAsksOfAWorld = 500;
  static std::optional<World> world;
  static int asks = 0;
  if (asks++ % kAsksOfAWorld == 0) world.emplace();
  const std::string answer = world->ask(take_choice(&input), input);
  if (answer.empty()) return;
  MOTLEY_CHECK(answer.starts_with("HTTP/1.1 "), "what is answered is not HTTP: " + answer);
  MOTLEY_CHECK(!answer.starts_with("HTTP/1.1 500"), "an error of the service's own: " + answer);
}

std::vector<std::string> fuzz_seeds() {
  std::vector<std::string> requests = requests_with_bodies();
  for (const Api::RouteView& route : Api::all_routes()) {
    std::string path = route.path;
    if (const size_t id = path.find("{id}"); id != path.npos) path.replace(id, 4, "1");
    if (const size_t name = path.find("{name}"); name != path.npos) path.replace(name, 6, "n1");
    requests.push_back(request_text(route.method, path));
  }
  std::vector<std::string> seeds;
  for (const std::string& request : requests)
    for (const char who : {'l', 's', 'v', 'w', 'x'}) seeds.push_back(who + request);
  seeds.push_back("l" + request_text("GET", "/v1/jobs") + request_text("GET", "/v1/nodes"));
  return seeds;
}

}  // namespace motley::testing
