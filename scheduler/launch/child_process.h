#pragma once
// Starting one child process and learning how it ended.

#include <sys/types.h>

#include <string>
#include <vector>

#include "core/ids.h"
#include "core/result.h"

namespace motley {

/// A file descriptor that closes itself.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(other.release()) {}
  Fd& operator=(Fd&& other) noexcept;
  ~Fd() { reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int release();
  void reset();

 private:
  int fd_ = -1;
};

struct Pipe {
  Fd read;
  Fd write;
};
Result<Pipe> make_pipe();  ///< both ends close on exec

/// What is left until `until`, rounded up, as poll() takes it; 0 when it has passed.
int poll_milliseconds(Nanos until);

struct SpawnRequest {
  std::vector<std::string> command;  ///< the program is looked for as a shell would
  std::vector<std::string> environment;
  int stdin_fd = -1;   ///< -1: /dev/null
  int stdout_fd = -1;  ///< -1: as ours
  int stderr_fd = -1;
  int kept_fd = -1;              ///< stays open in the child under the same number
  bool new_session = false;      ///< signals of our terminal do not reach it
  bool die_with_parent = false;  ///< SIGKILL when the calling thread ends
};

struct ExitStatus {
  int status = 0;  ///< of exit(); 128 + signal where one ended it
  int signal = 0;

  bool ok() const { return status == 0 && signal == 0; }
  std::string to_string() const;  ///< "status 3", "signal 9 (Killed)"
};

/// A child and its pidfd. Destroying a running one kills and reaps it.
class ChildProcess {
 public:
  ChildProcess(ChildProcess&&) = default;
  ChildProcess& operator=(ChildProcess&&) = delete;
  ~ChildProcess();

  /// kNotFound when the program cannot be executed.
  static Result<ChildProcess> spawn(const SpawnRequest& request);
  /// Takes over a child the caller has forked; kills it when it cannot be watched.
  static Result<ChildProcess> watch(pid_t pid);

  pid_t pid() const { return pid_; }
  int exit_fd() const { return exit_fd_.get(); }
  /// Reaps it when it has ended; then *status is set, now and on later calls.
  bool ended(ExitStatus* status);
  /// Waits for the end, at most `limit`.
  bool wait(Nanos limit, ExitStatus* status);
  void send(int signal);
  /// It goes on when this object goes, and is nobody's to reap: what exit_fd() gave.
  Fd let_go() { return std::move(exit_fd_); }

 private:
  ChildProcess(pid_t pid, Fd exit_fd) : pid_(pid), exit_fd_(std::move(exit_fd)) {}

  pid_t pid_ = -1;
  Fd exit_fd_;
  bool reaped_ = false;
  ExitStatus status_;
};

}  // namespace motley
