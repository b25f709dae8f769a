#include "scheduler/launch/child_process.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "core/clock.h"
#include "scheduler/launch/environment.h"

namespace motley {
namespace {

tl::unexpected<Error> system_error(const std::string& what) {
  return fail(ErrorCode::kIo, what + ": " + std::strerror(errno));
}

std::vector<char*> c_strings(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

/// What the child does between vfork and exec: only async-signal-safe calls, and it changes nothing
/// of ours but errno.
struct ChildSide {
  const char* program;
  char* const* arguments;
  char* const* environment;
  const SpawnRequest& request;
  pid_t parent;
  int error_pipe;

  [[noreturn]] void run() const {
    if (request.new_session) ::setsid();
    if (request.die_with_parent) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(127);  // it died before we asked
    }
    for (int signal : {SIGINT, SIGTERM, SIGPIPE, SIGHUP, SIGUSR1}) ::signal(signal, SIG_DFL);
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    const int null = request.stdin_fd < 0 ? ::open("/dev/null", O_RDONLY | O_CLOEXEC) : -1;
    ::dup2(request.stdin_fd < 0 ? null : request.stdin_fd, STDIN_FILENO);
    if (request.stdout_fd >= 0) ::dup2(request.stdout_fd, STDOUT_FILENO);
    if (request.stderr_fd >= 0) ::dup2(request.stderr_fd, STDERR_FILENO);
    // Whatever we have open is ours: a pipe of ours kept open by a rank would hide our end.
    ::close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
    if (request.kept_fd >= 0) ::fcntl(request.kept_fd, F_SETFD, 0);
    ::execve(program, arguments, environment);
    const int reason = errno;
    [[maybe_unused]] const ssize_t written = ::write(error_pipe, &reason, sizeof reason);
    ::_exit(127);
  }
};

/// A planner that counts memory has up to a gigabyte, the tables of which fork() would copy for
/// each worker. Until exec the child runs in our memory, where our signal handlers must not run.
pid_t start(const ChildSide& side) {
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, &before);
  const pid_t pid = ::vfork();
  if (pid == 0) side.run();
  const int reason = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = reason;
  return pid;
}

}  // namespace

Fd& Fd::operator=(Fd&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = other.release();
  }
  return *this;
}

int Fd::release() {
  const int fd = fd_;
  fd_ = -1;
  return fd;
}

void Fd::reset() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

Result<Pipe> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return system_error("cannot make a pipe");
  return Pipe{Fd(ends[0]), Fd(ends[1])};
}

std::string ExitStatus::to_string() const {
  if (signal != 0) return "signal " + std::to_string(signal) + " (" + ::strsignal(signal) + ")";
  return "status " + std::to_string(status);
}

Result<ChildProcess> ChildProcess::spawn(const SpawnRequest& request) {
  const Environment its = Environment::of(request.environment);
  const std::string program = its.has("PATH")
                                  ? find_program(request.command.front(), its.value("PATH"))
                                  : find_program(request.command.front());
  if (program.empty()) return fail(ErrorCode::kNotFound, "no program " + request.command.front());
  MOTLEY_TRY(Pipe error_pipe, make_pipe());
  const auto arguments = c_strings(request.command);
  const auto environment = c_strings(request.environment);
  const ChildSide side{program.c_str(), arguments.data(), environment.data(),
                       request,         ::getpid(),       error_pipe.write.get()};
  const pid_t pid = start(side);
  if (pid < 0) return system_error("cannot start " + program);
  error_pipe.write.reset();
  int reason = 0;
  ssize_t got;
  do got = ::read(error_pipe.read.get(), &reason, sizeof reason);
  while (got < 0 && errno == EINTR);
  if (got == sizeof reason) {
    ::waitpid(pid, nullptr, 0);
    return fail(ErrorCode::kNotFound, "cannot start " + program + ": " + std::strerror(reason));
  }
  return watch(pid);
}

Result<ChildProcess> ChildProcess::watch(pid_t pid) {
  // glibc 2.36 declares pidfd_open without extern "C". The descriptor closes on exec.
  Fd exit_fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!exit_fd.valid()) {
    const auto error = system_error("cannot watch process " + std::to_string(pid));
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    return error;
  }
  return ChildProcess(pid, std::move(exit_fd));
}

ChildProcess::~ChildProcess() {
  if (pid_ < 0 || !exit_fd_.valid() || reaped_) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

bool ChildProcess::ended(ExitStatus* status) {
  if (!reaped_) {
    siginfo_t info{};
    if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG) != 0) {
      // Someone else reaped it: nothing more will be learnt.
      status_ = ExitStatus{.status = 255, .signal = 0};
    } else if (info.si_pid == 0) {
      return false;
    } else if (info.si_code == CLD_EXITED) {
      status_ = ExitStatus{.status = info.si_status, .signal = 0};
    } else {
      status_ = ExitStatus{.status = 128 + info.si_status, .signal = info.si_status};
    }
    reaped_ = true;
  }
  *status = status_;
  return true;
}

int poll_milliseconds(Nanos until) {
  const int64_t left = until.value() - steady_clock().now().value();
  return left <= 0 ? 0 : static_cast<int>(std::min<int64_t>(left / 1'000'000 + 1, 1'000'000));
}

bool ChildProcess::wait(Nanos limit, ExitStatus* status) {
  const Nanos until = steady_clock().now() + limit;
  while (!ended(status)) {
    pollfd watched{exit_fd_.get(), POLLIN, 0};
    const int timeout = poll_milliseconds(until);
    if (::poll(&watched, 1, timeout) == 0 && timeout == 0) return false;
  }
  return true;
}

void ChildProcess::send(int signal) {
  if (!reaped_) ::kill(pid_, signal);
}

}  // namespace motley
