#include "tests/bench/service_http.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstring>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "core/clock.h"
#include "scheduler/launch/child_process.h"
#include "tests/bench/service_process.h"
#include "tests/support/temporary_directory.h"

namespace motley {
namespace {

constexpr int kClients = 32;
constexpr double kSeconds = 3;
constexpr int kFirstLines = 7;

constexpr const char* kFleet = R"(version: 1
pace: {clock: virtual, flops: 1.0e9}
nodes:
  - host: localhost
    slots: 1
    devices:
      - {kind: cpu, type: card, threads: 1, paced: {speed: 1, memory: 1GB}}
)";

constexpr const char* kJob = R"(version: 1
name: bench
model: {type: gpt, layers: 1, heads: 1, width: 8, context: 8}
data: {text: [text.txt]}
train: {global_batch: 4, steps: 5}
)";

/// A connection that is kept, and asked one thing after the other.
class Connection {
 public:
  explicit Connection(const std::string& path) : fd_(::socket(AF_UNIX, SOCK_STREAM, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
    if (::connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
      fd_.reset();
  }

  /// Whether it was answered with this status.
  bool ask(const std::string& request, const char* status) {
    if (::send(fd_.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0) return false;
    std::string answer;
    while (!is_whole(answer)) {
      char piece[8192];
      const ssize_t size = ::recv(fd_.get(), piece, sizeof piece, 0);
      if (size <= 0) return false;
      answer.append(piece, static_cast<size_t>(size));
    }
    return answer.compare(9, 3, status) == 0;
  }

 private:
  static bool is_whole(const std::string& answer) {
    const size_t head = answer.find("\r\n\r\n");
    const size_t length = answer.find("Content-Length: ");
    if (head == std::string::npos || length > head) return false;
    return answer.size() >= head + 4 + std::stoul(answer.substr(length + 16));
  }

  Fd fd_;
};

/// Requests a second that were answered with this status; each client waits for its answers.
double answers_per_second(const std::string& socket, const char* status,
                          const std::function<std::string(int client, int number)>& request) {
  std::atomic<int64_t> answered{0};
  const Nanos begin = steady_clock().now(), end = begin + nanos_of_seconds(kSeconds);
  std::vector<std::thread> threads;
  for (int client = 0; client < kClients; ++client)
    threads.emplace_back([&, client] {
      Connection connection(socket);
      for (int i = 0; steady_clock().now() < end; ++i)
        if (!connection.ask(request(client, i), status))
          return;
        else
          ++answered;
    });
  for (std::thread& thread : threads) thread.join();
  return static_cast<double>(answered) / seconds_of(steady_clock().now() - begin);
}

std::string post_of(const std::string& query, const std::string& key) {
  const std::string body = kJob;
  return "POST /v1/jobs?" + query + " HTTP/1.1\r\nHost: bench\r\nIdempotency-Key: " + key +
         "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

Result<double> first_line_seconds(const ServiceClient& client, const std::string& query) {
  std::vector<double> seconds;
  for (int i = 0; i <= kFirstLines; ++i) {
    const Nanos before = steady_clock().now();
    MOTLEY_TRY(const nlohmann::json job, client.post("/v1/jobs?" + query, kJob));
    const std::string path = "/v1/jobs/" + job["id"].dump();
    MOTLEY_TRY_VOID(client.follow(path + "/logs", [](const nlohmann::json&) { return false; }));
    // The first one measures the devices for those that follow.
    if (i > 0) seconds.push_back(seconds_of(steady_clock().now() - before));
    MOTLEY_TRY_VOID(client.follow(path + "/logs", [](const nlohmann::json&) { return true; }));
  }
  std::nth_element(seconds.begin(), seconds.begin() + kFirstLines / 2, seconds.end());
  return seconds[kFirstLines / 2];
}

}  // namespace

Result<ServedFigures> measure_served() {
  const testing::TemporaryDirectory directory;
  std::ofstream(directory.path() + "/text.txt") << std::string(5000, 'x');
  MOTLEY_TRY(ChildProcess service, start_service(directory.path(), kFleet));
  const ServiceClient client = client_of_service(directory.path());
  MOTLEY_TRY_VOID(wait_until_served(client, 5));
  const std::string socket = socket_of_service(directory.path());
  const std::string source = "source=" + directory.path() + "/job.yaml";
  ServedFigures figures;
  MOTLEY_TRY(figures.first_line_seconds, first_line_seconds(client, source));
  figures.durable_submits_per_second = answers_per_second(socket, "201", [&](int number, int i) {
    return post_of(source + "&hold=true", std::to_string(number) + "-" + std::to_string(i));
  });
  figures.reads_per_second = answers_per_second(socket, "200", [](int, int) {
    return std::string("GET /v1/jobs/1 HTTP/1.1\r\nHost: bench\r\n\r\n");
  });
  end_service(service, SIGTERM);
  return figures;
}

}  // namespace motley
