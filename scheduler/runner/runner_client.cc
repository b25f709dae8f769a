#include "scheduler/runner/runner_client.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <utility>

#include "core/log.h"
#include "scheduler/launch/environment.h"
#include "scheduler/launch/process_tree.h"

namespace motley {
namespace {

constexpr double kExitSeconds = 15;  // kill_all may take 10
constexpr double kSweepSeconds = 10;

const char* option_of(AssignmentKind kind) {
  switch (kind) {
    case AssignmentKind::kTrain:
      return "--attempt";
    case AssignmentKind::kProfile:
      return "--profile";
    case AssignmentKind::kProgram:
      return "--program";
  }
  return "";
}

}  // namespace

Result<std::unique_ptr<RunnerClient>> RunnerClient::start(const RunnerClientOptions& options) {
  MOTLEY_TRY(Pipe in, make_pipe());
  MOTLEY_TRY(Pipe out, make_pipe());
  become_subreaper();
  ::signal(SIGPIPE, SIG_IGN);  // a dead runner is noticed by its silence
  SpawnRequest spawn;
  spawn.command = {options.program, "runner", option_of(options.kind), options.document};
  if (!options.rsh_agent.empty()) {
    spawn.command.push_back("--rsh-agent");
    spawn.command.push_back(options.rsh_agent);
  }
  spawn.environment = Environment::inherited().entries();
  spawn.stdin_fd = in.read.get();
  spawn.stdout_fd = out.write.get();
  spawn.kept_fd = options.lock_fd;
  spawn.new_session = true;  // Ctrl-C reaches only us: we tell the runner what to do about it
  MOTLEY_TRY(ChildProcess child, ChildProcess::spawn(spawn));
  ::fcntl(out.read.get(), F_SETFL, O_NONBLOCK);
  return std::unique_ptr<RunnerClient>(
      new RunnerClient(std::move(child), std::move(in.write), std::move(out.read)));
}

RunnerClient::~RunnerClient() {
  if (!end_) end();
}

void RunnerClient::read_available() {
  char buffer[16384];
  while (!over_) {
    const ssize_t got = ::read(output_.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) break;
    if (got <= 0)
      over_ = true;
    else
      buffer_.append(buffer, static_cast<size_t>(got));
  }
  size_t begin = 0;
  for (size_t end; (end = buffer_.find('\n', begin)) != std::string::npos; begin = end + 1)
    take_line(buffer_.substr(begin, end - begin));
  buffer_.erase(0, begin);
}

void RunnerClient::take_line(const std::string& text) {
  auto line = runner_line_from_text(text);
  if (!line) return log_warning(line.error().message);
  if (line->event != "ended") return lines_.push_back(std::move(*line));
  if (auto end = attempt_end_from_text(line->data)) end_ = *end;
}

std::optional<RunnerLine> RunnerClient::next() {
  if (lines_.empty()) read_available();
  if (lines_.empty()) return std::nullopt;
  RunnerLine line = std::move(lines_.front());
  lines_.pop_front();
  return line;
}

void RunnerClient::send(const std::string& word) {
  const std::string line = word + "\n";
  if (input_.valid() && ::write(input_.get(), line.data(), line.size()) < 0 && errno != EINTR)
    input_.reset();
}

AttemptEnd RunnerClient::end() {
  input_.reset();  // if it still runs: it ends
  ExitStatus status;
  const bool exited = child_.wait(nanos_of_seconds(kExitSeconds), &status);
  if (!exited) child_.send(SIGKILL);
  read_available();
  kill_descendants({}, nanos_of_seconds(kSweepSeconds));
  if (!end_) {
    end_ = AttemptEnd{};
    end_->error = Error{ErrorCode::kRunFailed,
                        "the runner of this attempt ended with " +
                            (exited ? status.to_string() : std::string("no sign of life")),
                        {}};
  }
  return *end_;
}

}  // namespace motley
