#include "scheduler/agent/command_runner.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "scheduler/launch/environment.h"
#include "scheduler/launch/marked_processes.h"
#include "scheduler/launch/process_tree.h"

namespace motley {
namespace {

constexpr const char* kMark = "MOTLEY_NODE_COMMAND";
constexpr size_t kMostOutput = 1 << 20;  // of a command; ranks write into their own logs
constexpr double kKillSeconds = 10;
constexpr int kCannotStart = 127;

std::string mark_of(AttemptId attempt) {
  return std::to_string(attempt.job) + "." + std::to_string(attempt.epoch.value()) + "/";
}

/// What the command is to read, as something that is there as a whole.
Result<Fd> input_of(const std::string& text) {
  Fd file(::memfd_create("motley-input", MFD_CLOEXEC));
  if (!file.valid() ||
      ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    return fail(ErrorCode::kIo, std::string("cannot keep its input: ") + std::strerror(errno));
  ::lseek(file.get(), 0, SEEK_SET);
  return file;
}

}  // namespace

CommandRunner::CommandRunner(std::string owner)
    : mark_(std::string(kMark) + "=" + std::move(owner) + "/") {
  become_subreaper();
}

void CommandRunner::start(const NodeCommand& command) {
  if (const auto spawned = spawn(command); !spawned)
    failed_.push_back({command.id, 0, "end", spawned.error().message, kCannotStart});
}

Result<Unit> CommandRunner::spawn(const NodeCommand& command) {
  MOTLEY_TRY(Pipe out, make_pipe());
  MOTLEY_TRY(Pipe err, make_pipe());
  SpawnRequest spawn;
  spawn.command = {"/bin/sh", "-c", command.command};
  Environment environment = Environment::inherited();
  const std::string entry = mark_ + mark_of(command.attempt) + command.id + "/";
  environment.set(kMark, entry.substr(entry.find('=') + 1));
  spawn.environment = environment.entries();
  Fd input;
  if (!command.input.empty()) {
    MOTLEY_TRY(input, input_of(command.input));
    spawn.stdin_fd = input.get();
  }
  spawn.stdout_fd = out.write.get();
  spawn.stderr_fd = err.write.get();
  spawn.new_session = true;
  spawn.die_with_parent = true;
  MOTLEY_TRY(ChildProcess child, ChildProcess::spawn(spawn));
  for (const Fd* end : {&out.read, &err.read}) ::fcntl(end->get(), F_SETFL, O_NONBLOCK);
  running_.emplace(command.id, Running{command.id, std::move(child), std::move(out.read),
                                       std::move(err.read), 0, 0});
  return Unit{};
}

void CommandRunner::append_polled(std::vector<pollfd>* polled) const {
  for (const auto& [id, running] : running_) {
    polled->push_back({running.child.exit_fd(), POLLIN, 0});
    for (const Fd* stream : {&running.out, &running.err})
      if (stream->valid()) polled->push_back({stream->get(), POLLIN, 0});
  }
}

void CommandRunner::read_stream(Running& running, Fd Running::*from, const char* name,
                                std::vector<CommandPiece>* pieces) {
  Fd& stream = running.*from;
  char buffer[4096];
  while (stream.valid()) {
    const ssize_t got = ::read(stream.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) return stream.reset();
    const bool fits = running.bytes < kMostOutput;
    running.bytes += static_cast<size_t>(got);
    std::string text(buffer, static_cast<size_t>(got));
    if (fits && running.bytes >= kMostOutput) text += "\n(more than 1 MiB: the rest is left out)\n";
    if (fits) pieces->push_back({running.id, running.pieces++, name, std::move(text), 0});
  }
}

std::vector<CommandPiece> CommandRunner::read() {
  std::vector<CommandPiece> pieces = std::exchange(failed_, {});
  for (auto each = running_.begin(); each != running_.end();) {
    Running& running = each->second;
    ExitStatus status;
    const bool ended = running.child.ended(&status);
    // After its end: then all that it has written itself is there.
    read_stream(running, &Running::out, "out", &pieces);
    read_stream(running, &Running::err, "err", &pieces);
    if (ended) pieces.push_back({running.id, running.pieces, "end", "", status.status});
    each = ended ? running_.erase(each) : std::next(each);
  }
  reap_orphans();
  return pieces;
}

/// What commands have left behind is our child by now.
void CommandRunner::reap_orphans() {
  const auto is_command = [&](pid_t pid) {
    return std::any_of(running_.begin(), running_.end(),
                       [&](const auto& entry) { return entry.second.child.pid() == pid; });
  };
  siginfo_t info{};
  while (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0 &&
         !is_command(info.si_pid))
    ::waitpid(info.si_pid, nullptr, 0);
}

bool CommandRunner::end(AttemptId attempt) {
  return kill_marked(mark_ + mark_of(attempt), nanos_of_seconds(kKillSeconds));
}

bool CommandRunner::end(const NodeCommand& command) {
  return kill_marked(mark_ + mark_of(command.attempt) + command.id + "/",
                     nanos_of_seconds(kKillSeconds));
}

bool CommandRunner::end_all() { return kill_marked(mark_, nanos_of_seconds(kKillSeconds)); }

}  // namespace motley
