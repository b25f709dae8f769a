#include "scheduler/agent/remote_shell.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <vector>

#include "core/clock.h"
#include "scheduler/launch/environment.h"
#include "scheduler/launch/remote_hosts.h"
#include "scheduler/runner/attempt_key.h"
#include "scheduler/service/attempt_files.h"
#include "scheduler/service/node_json.h"
#include "scheduler/service/service_client.h"

namespace motley {
namespace {

using nlohmann::json;

/// As long as the agent waits for the next coordinator.
constexpr Nanos kAgentWaits{600'000'000'000};
constexpr auto kAskAgain = std::chrono::milliseconds(200);
constexpr int kFailed = 255;
constexpr size_t kMostInput = 512 << 10;  // what a request has room for

Result<std::string> all_input() {
  std::string text;
  char buffer[16384];
  while (true) {
    const ssize_t got = ::read(STDIN_FILENO, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text;
    text.append(buffer, static_cast<size_t>(got));
    if (text.size() > kMostInput)
      return fail(ErrorCode::kUsage, "more than 512 KiB of input for a command on another node");
  }
}

class RemoteCommand {
 public:
  RemoteCommand(ServiceAddress coordinator, NodeCommand command)
      : client_(std::move(coordinator)), command_(std::move(command)) {}

  /// The command belongs to the agent: whichever coordinator there is passes on what it says.
  Result<int> run() {
    Nanos heard = steady_clock().now();
    while (!status_) {
      const auto followed = ask_and_follow();
      const Nanos now = steady_clock().now();
      if (followed) heard = now;
      if (!followed && (!may_pass(followed.error()) || now - heard > kAgentWaits))
        return fail(followed.error());
      if (!status_) std::this_thread::sleep_for(kAskAgain);
    }
    return *status_;
  }

 private:
  static bool may_pass(const Error& error) {
    return error.code == ErrorCode::kNoDevice || error.code == ErrorCode::kPeerLost ||
           error.code == ErrorCode::kNotFound;
  }

  Result<Unit> ask_and_follow() {
    json request = to_json(command_);
    request["key"] = command_.key;
    MOTLEY_TRY_VOID(
        client_.post("/v1/commands", request.dump(-1, ' ', false, json::error_handler_t::replace)));
    return client_.follow("/v1/commands/" + command_.id,
                          [this](const json& data) { return take(data); });
  }

  /// False after the last piece.
  bool take(const json& data) {
    const auto piece = command_piece_from_json(data);
    if (!piece || piece->number < next_) return true;
    next_ = piece->number + 1;
    std::FILE* to = piece->stream == "out" ? stdout : stderr;
    std::fputs(piece->text.c_str(), to);
    if (piece->is_end() && !piece->text.empty()) std::fputs("\n", to);
    std::fflush(to);
    if (piece->is_end()) status_ = piece->status;
    return !status_;
  }

  ServiceClient client_;
  NodeCommand command_;
  int next_ = 0;
  std::optional<int> status_;
};

[[noreturn]] void become_ssh(const std::string& host, const std::string& command) {
  const std::vector<std::string> words = remote_command("", host, command);
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  ::execvp(arguments.front(), arguments.data());
  std::perror("ssh");
  ::_exit(kFailed);
}

}  // namespace

Result<int> run_on_node(const std::string& host, const std::string& command) {
  const std::string directory = Environment::inherited().value("MOTLEY_ATTEMPT");
  if (directory.empty())
    return fail(ErrorCode::kUsage, "rsh is for attempts of the job service: no MOTLEY_ATTEMPT");
  const AttemptFiles files(directory);
  MOTLEY_TRY(const AttemptOrder order, files.order());
  if (std::find(order.agents.begin(), order.agents.end(), host) == order.agents.end())
    become_ssh(host, command);
  NodeCommand asked;
  MOTLEY_TRY(const AttemptKey id, AttemptKey::generate());
  asked.id = id.text();
  asked.attempt = order.id;
  asked.node = host;
  asked.command = command;
  MOTLEY_TRY(asked.key, files.key());
  MOTLEY_TRY(asked.input, all_input());
  const auto status =
      RemoteCommand({Environment::inherited().value("MOTLEY_SOCKET"), {}}, std::move(asked)).run();
  if (status) return status;
  std::fprintf(stderr, "%s\n", status.error().to_string().c_str());
  return kFailed;
}

}  // namespace motley
