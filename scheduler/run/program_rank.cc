#include "scheduler/run/program_rank.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "core/clock.h"
#include "scheduler/launch/bounded_log.h"
#include "scheduler/launch/child_process.h"
#include "scheduler/run/signal_inbox.h"
#include "scheduler/runner/program_assignment.h"

namespace motley {
namespace {

constexpr int kStoppedStatus = 75;

Result<int> own_rank(int ranks) {
  const std::string text = Environment::inherited().value("OMPI_COMM_WORLD_RANK");
  int rank = -1;
  std::from_chars(text.data(), text.data() + text.size(), rank);
  if (rank < 0 || rank >= ranks)
    return fail(ErrorCode::kUsage,
                "OMPI_COMM_WORLD_RANK is no rank of this attempt: '" + text + "'");
  return rank;
}

/// What a program prints, on its way to where we print. Without a limit it goes there by itself.
class ProgramOutput {
 public:
  static Result<std::unique_ptr<ProgramOutput>> open(Bytes limit) {
    auto output = std::make_unique<ProgramOutput>(limit);
    if (limit == Bytes(0)) return output;
    MOTLEY_TRY(output->printed_, make_pipe());
    MOTLEY_TRY(output->ended_, make_pipe());
    ::fcntl(output->printed_.read.get(), F_SETFL, O_NONBLOCK);
    return output;
  }
  explicit ProgramOutput(Bytes limit) : log_(STDOUT_FILENO, limit) {}
  /// The program has ended; what it has left behind may still have the pipe, and is not waited for.
  ~ProgramOutput() {
    ended_.write.reset();
    if (copier_.joinable()) copier_.join();
  }

  int fd() const { return printed_.write.get(); }  ///< the program's; -1: as ours
  void begin() {
    if (!printed_.read.valid()) return;
    printed_.write.reset();
    copier_ = std::thread([this] { copy(); });
  }

 private:
  void copy() {
    std::vector<char> buffer(64 << 10);  // what a pipe holds
    pollfd watched[2] = {{printed_.read.get(), POLLIN, 0}, {ended_.read.get(), POLLIN, 0}};
    for (bool ended = false; !ended;) {
      ::poll(watched, 2, -1);
      ended = watched[1].revents != 0;
      const ssize_t size = ::read(printed_.read.get(), buffer.data(), buffer.size());
      if (size > 0) log_.write({buffer.data(), static_cast<size_t>(size)});
      if (size == 0) watched[0].fd = -1;  // nobody has it any more
    }
    log_.end();
  }

  BoundedLog log_;
  Pipe printed_, ended_;
  std::thread copier_;
};

Result<ChildProcess> spawn(const ProgramAssignment& assignment, int rank,
                           const std::vector<std::string>& command, ProgramOutput& output) {
  const std::string& place = assignment.job.program.workdir;
  if (::chdir(place.c_str()) != 0)
    return fail(ErrorCode::kNotFound, "workdir " + place + ": " + std::strerror(errno));
  SpawnRequest request;
  request.command = command;
  request.environment = program_environment(assignment, rank, Environment::inherited()).entries();
  request.die_with_parent = true;
  request.stdout_fd = request.stderr_fd = output.fd();
  MOTLEY_TRY(ChildProcess child, ChildProcess::spawn(request));
  output.begin();
  return child;
}

/// Processes that are ours to wait for.
std::vector<pid_t> own_children() {
  std::vector<pid_t> found;
  std::error_code error;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", error)) {
    std::ifstream children(thread.path() / "children");
    for (pid_t pid = 0; children >> pid;) found.push_back(pid);
  }
  return found;
}

/// A shell that is asked to stop dies of it and leaves what it had started, which does not know:
/// it has become ours and is asked in its turn. Waits for all of it; the first that ends by itself
/// says how.
void stop_left_behind(ExitStatus* status) {
  constexpr auto kBetweenLooks = std::chrono::milliseconds(20);
  std::set<pid_t> asked;
  while (true) {
    int ended = 0;
    const pid_t pid = ::waitpid(-1, &ended, WNOHANG);
    if (pid < 0 && errno != EINTR) return;  // there is none
    if (pid > 0) {
      if (status->signal != 0 && WIFEXITED(ended)) *status = {WEXITSTATUS(ended), 0};
      continue;
    }
    for (const pid_t child : own_children())
      if (asked.insert(child).second) ::kill(child, SIGTERM);
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

/// A program that is measured says within so long that it will tell something.
constexpr Nanos kToSaySo{int64_t{300} * 1'000'000'000};

/// Passes signals on until it has ended; whether one was. From `silent_until` on it is ended while
/// `silent()`.
bool wait_for(ChildProcess& child, SignalInbox& signals, ExitStatus* status,
              std::optional<Nanos> silent_until = std::nullopt,
              const std::function<bool()>& silent = nullptr) {
  bool asked = false;
  while (!child.ended(status)) {
    if (silent_until && steady_clock().now() >= *silent_until) {
      if (silent()) child.send(SIGKILL);
      silent_until.reset();
    }
    while (const auto signal = signals.next()) {
      asked = true;
      // Not before: what a program leaves behind while it trains would be nobody's to reap.
      ::prctl(PR_SET_CHILD_SUBREAPER, 1);
      child.send(*signal == SIGINT ? SIGTERM : *signal);
    }
    pollfd watched[2] = {{child.exit_fd(), POLLIN, 0}, {signals.fd(), POLLIN, 0}};
    ::poll(watched, 2, silent_until ? poll_milliseconds(*silent_until) : -1);
  }
  if (asked && status->signal == SIGTERM) stop_left_behind(status);
  return asked;
}

/// What is not there now will not be there a minute later either: no other attempt is made of it.
Result<int> not_started(const std::string& directory, int rank, const Error& error) {
  remove_rank_process(directory, rank);
  ProgramEnd end{rank, exit_code(error.code), 0, steady_clock().now().value()};
  if (error.code == ErrorCode::kNotFound) end.missing = error.message;
  MOTLEY_TRY_VOID(write_program_end(directory, end));
  return fail(error);
}

}  // namespace

Result<int> run_program_rank(const std::string& document) {
  MOTLEY_TRY(const ProgramAssignment assignment, read_program(document));
  MOTLEY_TRY(const int rank, own_rank(static_cast<int>(assignment.fleet.devices.size())));
  SignalInbox signals;
  MOTLEY_TRY_VOID(write_rank_process(assignment.directory, rank));
  MOTLEY_TRY(auto output, ProgramOutput::open(assignment.log_limit));
  auto started = spawn(assignment, rank, assignment.job.program.command, *output);
  if (!started) return not_started(assignment.directory, rank, started.error());
  ChildProcess child = *std::move(started);
  ExitStatus status;
  const auto told = [&] { return read_measured(assignment.directory, rank); };
  const bool asked = assignment.measure
                         ? wait_for(child, signals, &status, steady_clock().now() + kToSaySo,
                                    [&] { return !told(); })
                         : wait_for(child, signals, &status);
  output.reset();
  remove_rank_process(assignment.directory, rank);
  ProgramEnd end{rank, status.signal != 0 ? 0 : status.status, status.signal,
                 steady_clock().now().value()};
  if (assignment.measure) {
    if (auto measured = told()) end.measured = *measured;
  }
  MOTLEY_TRY_VOID(write_program_end(assignment.directory, end));
  // Of all that are asked to stop none is to end the others before they have saved: neither by its
  // status nor as who is asked once more now that nobody looks at signals.
  ::signal(SIGTERM, SIG_IGN);
  return asked || status.status == kStoppedStatus ? 0 : status.status;
}

Result<Unit> run_program_setup(const std::string& document) {
  MOTLEY_TRY(const ProgramAssignment assignment, read_program(document));
  SignalInbox signals;
  MOTLEY_TRY(const auto output, ProgramOutput::open(assignment.log_limit));
  MOTLEY_TRY(ChildProcess child, spawn(assignment, 0, assignment.job.program.setup, *output));
  ExitStatus status;
  if (wait_for(child, signals, &status)) return fail(ErrorCode::kStopped, "stopped during setup");
  if (!status.ok()) return fail(ErrorCode::kRunFailed, "setup ended with " + status.to_string());
  return Unit{};
}

}  // namespace motley
