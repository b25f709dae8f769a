#include "scheduler/runner/rank_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "core/clock.h"
#include "scheduler/launch/command.h"
#include "scheduler/launch/environment.h"
#include "scheduler/launch/remote_hosts.h"

namespace motley {
namespace {

constexpr size_t kMostRead = 64 << 10;
constexpr Nanos kShortestPause{1'000'000'000}, kLongestPause{8'000'000'000};
constexpr Nanos kPatience{20'000'000'000};

}  // namespace

RankOutput::RankOutput(std::string log_path, std::string host, std::string rsh_agent)
    : path_(std::move(log_path)),
      host_(std::move(host)),
      rsh_agent_(std::move(rsh_agent)),
      pause_(kShortestPause) {}

std::string RankOutput::next() {
  std::string text = here();
  return taken(text.empty() && !host_.empty() && ::access(path_.c_str(), F_OK) != 0
                   ? there()
                   : std::move(text));
}

/// Less the beginning of a line that is still being written.
std::string RankOutput::taken(std::string text) {
  const size_t line_end = text.rfind('\n');
  if (text.size() < kMostRead) text.resize(line_end == std::string::npos ? 0 : line_end + 1);
  offset_ += static_cast<int64_t>(text.size());
  return text;
}

std::string RankOutput::here() {
  const Fd fd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text(kMostRead, '\0');
  const ssize_t size = fd.valid() ? ::pread(fd.get(), text.data(), kMostRead, offset_) : 0;
  text.resize(size > 0 ? static_cast<size_t>(size) : 0);
  return text;
}

/// What a shell there is to do.
std::string RankOutput::asking() const {
  return "tail -c +" + std::to_string(offset_ + 1) + " " + shell_quoted(path_) +
         " 2>/dev/null | head -c " + std::to_string(kMostRead);
}

/// What the command under way has brought, once it has ended; begins one when it is time.
std::string RankOutput::there() {
  if (!asked_ && steady_clock().now() < ask_at_) return "";
  if (!asked_) {
    auto pipe = make_pipe();
    if (!pipe) return "";
    ::fcntl(pipe->read.get(), F_SETFL, O_NONBLOCK);
    SpawnRequest request;
    request.command = remote_command(rsh_agent_, host_, asking());
    request.environment = Environment::inherited().entries();
    request.stdout_fd = pipe->write.get();
    request.die_with_parent = true;
    auto child = ChildProcess::spawn(request);
    if (!child) return "";
    asked_.emplace(Asked{*std::move(child), std::move(pipe->read), ""});
  }
  ExitStatus status;
  const bool ended = asked_->command.ended(&status);
  char buffer[4096];
  for (ssize_t size; (size = ::read(asked_->answer.get(), buffer, sizeof buffer)) > 0;)
    asked_->text.append(buffer, static_cast<size_t>(size));
  if (!ended) return "";
  std::string text = status.ok() ? std::move(asked_->text) : "";
  asked_.reset();
  pause_ = text.empty() ? std::min(pause_ * 2, kLongestPause) : kShortestPause;
  ask_at_ = steady_clock().now() + (text.size() < kMostRead ? pause_ : Nanos(0));
  return text;
}

std::string RankOutput::rest() {
  asked_.reset();
  const Nanos until = steady_clock().now() + kPatience;
  std::string all;
  while (true) {
    std::string text = here();
    const Nanos left = until - steady_clock().now();
    if (text.empty() && !host_.empty() && left > Nanos(0)) {
      const auto told = run_command({remote_command(rsh_agent_, host_, asking()), ""}, left);
      if (told && told->status.ok()) text = told->out;
    }
    if (text.empty()) return all;
    offset_ += static_cast<int64_t>(text.size());
    all += text;
  }
}

}  // namespace motley
