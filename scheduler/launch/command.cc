#include "scheduler/launch/command.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

#include "core/clock.h"
#include "scheduler/launch/environment.h"

namespace motley {
namespace {

/// One command and our ends of its pipes.
class RunningCommand {
 public:
  static Result<RunningCommand> start(const CommandRequest& request) {
    MOTLEY_TRY(Pipe in, make_pipe());
    MOTLEY_TRY(Pipe out, make_pipe());
    MOTLEY_TRY(Pipe err, make_pipe());
    SpawnRequest spawn;
    spawn.command = request.command;
    spawn.environment = Environment::inherited().entries();
    spawn.stdin_fd = in.read.get();
    spawn.stdout_fd = out.write.get();
    spawn.stderr_fd = err.write.get();
    spawn.new_session = true;
    MOTLEY_TRY(ChildProcess child, ChildProcess::spawn(spawn));
    ::fcntl(in.write.get(), F_SETFL, O_NONBLOCK);
    return RunningCommand(std::move(child), {std::move(in.write), std::move(out.read),
                                             std::move(err.read), request.input});
  }

  bool reading() const { return out_.valid() || err_.valid(); }

  void append_polled(std::vector<pollfd>* polled) const {
    polled->push_back({in_.get(), POLLOUT, 0});
    polled->push_back({out_.get(), POLLIN, 0});
    polled->push_back({err_.get(), POLLIN, 0});
  }

  void react(const pollfd* polled) {
    if (in_.valid() && polled[0].revents != 0) write_some();
    if (out_.valid() && polled[1].revents != 0) read_some(&out_, &output_.out);
    if (err_.valid() && polled[2].revents != 0) read_some(&err_, &output_.err);
  }

  CommandOutput finish() {
    output_.timed_out = reading();
    if (output_.timed_out) ::kill(-child_.pid(), SIGKILL);
    // It has closed its outputs, so its end is near.
    if (!child_.wait(nanos_of_seconds(5), &output_.status)) output_.timed_out = true;
    return std::move(output_);
  }

 private:
  struct Ends {
    Fd in, out, err;
    std::string input;
  };
  RunningCommand(ChildProcess child, Ends ends)
      : child_(std::move(child)),
        in_(std::move(ends.in)),
        out_(std::move(ends.out)),
        err_(std::move(ends.err)),
        input_(std::move(ends.input)) {
    if (input_.empty()) in_.reset();
  }

  static void read_some(Fd* from, std::string* to) {
    char buffer[4096];
    const ssize_t got = ::read(from->get(), buffer, sizeof buffer);
    if (got > 0)
      to->append(buffer, static_cast<size_t>(got));
    else if (got == 0 || (errno != EINTR && errno != EAGAIN))
      from->reset();
  }

  void write_some() {
    const ssize_t put = ::write(in_.get(), input_.data() + written_, input_.size() - written_);
    if (put > 0) written_ += static_cast<size_t>(put);
    if ((put < 0 && errno != EINTR && errno != EAGAIN) || written_ == input_.size()) in_.reset();
  }

  ChildProcess child_;
  Fd in_, out_, err_;
  std::string input_;
  size_t written_ = 0;
  CommandOutput output_;
};

using Running = std::vector<Result<RunningCommand>>;

bool any_reading(const Running& commands) {
  return std::any_of(commands.begin(), commands.end(),
                     [](const auto& command) { return command && command->reading(); });
}

}  // namespace

std::vector<Result<CommandOutput>> run_commands(const std::vector<CommandRequest>& requests,
                                                Nanos limit) {
  ::signal(SIGPIPE, SIG_IGN);  // a command that does not read its input is no reason to die
  Running commands;
  for (const CommandRequest& request : requests) commands.push_back(RunningCommand::start(request));
  const Nanos until = steady_clock().now() + limit;
  while (any_reading(commands)) {
    std::vector<pollfd> polled;
    for (const auto& command : commands)
      if (command) command->append_polled(&polled);
    const int timeout = poll_milliseconds(until);
    if (timeout == 0) break;
    if (::poll(polled.data(), polled.size(), timeout) <= 0) continue;
    const pollfd* next = polled.data();
    for (auto& command : commands)
      if (command) command->react(std::exchange(next, next + 3));
  }
  std::vector<Result<CommandOutput>> outputs;
  for (auto& command : commands) {
    if (command)
      outputs.emplace_back(command->finish());
    else
      outputs.emplace_back(fail(command.error()));
  }
  return outputs;
}

Result<CommandOutput> run_command(const CommandRequest& request, Nanos limit) {
  return std::move(run_commands({request}, limit).front());
}

std::string last_line(const std::string& text) {
  const size_t end = text.find_last_not_of(" \t\r\n");
  if (end == std::string::npos) return "";
  const size_t before = text.find_last_of('\n', end);
  const size_t begin = before == std::string::npos ? 0 : before + 1;
  return text.substr(begin, end - begin + 1);
}

}  // namespace motley
