#pragma once
// The runner as seen by the process that started it.

#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "core/ids.h"
#include "core/result.h"
#include "scheduler/launch/child_process.h"
#include "scheduler/runner/assignment.h"
#include "scheduler/runner/runner_fsm.h"
#include "scheduler/runner/runner_line.h"

namespace motley {

struct RunnerClientOptions {
  std::string program;  ///< path of `motley`
  AssignmentKind kind = AssignmentKind::kTrain;
  std::string document;
  std::string rsh_agent;  ///< empty: ssh
  int lock_fd = -1;       ///< a lock the runner shall hold as long as it lives; -1: none
};

/// A running `motley runner`. Makes this process a child subreaper, so that nothing is left even
/// when the runner itself is killed; one at a time. Destroying it ends the attempt.
class RunnerClient {
 public:
  static Result<std::unique_ptr<RunnerClient>> start(const RunnerClientOptions& options);
  ~RunnerClient();

  int output_fd() const { return output_.get(); }  ///< readable when next() may have more
  /// The next line that has arrived, other than "ended". Does not block.
  std::optional<RunnerLine> next();
  /// True when no line will come any more: call end().
  bool over() const { return over_ && lines_.empty(); }
  /// One of the words of runner_line.h.
  void send(const std::string& word);
  /// Waits for the runner, sweeps up what it may have left, and says how the attempt ended.
  AttemptEnd end();

  pid_t pid() const { return child_.pid(); }

 private:
  RunnerClient(ChildProcess child, Fd input, Fd output)
      : child_(std::move(child)), input_(std::move(input)), output_(std::move(output)) {}
  void read_available();
  void take_line(const std::string& text);

  ChildProcess child_;
  Fd input_;
  Fd output_;
  std::string buffer_;
  std::deque<RunnerLine> lines_;
  bool over_ = false;
  std::optional<AttemptEnd> end_;
};

}  // namespace motley
