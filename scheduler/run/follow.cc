#include "scheduler/run/follow.h"

#include <poll.h>

#include <csignal>

namespace motley {

Followed follow(RunnerClient& runner, SignalInbox& signals, OnSignal policy,
                const std::function<void(const RunnerLine&)>& on_line,
                const std::function<void(int)>& on_signal) {
  Followed followed;
  while (!runner.over()) {
    if (const auto line = runner.next()) {
      on_line(*line);
      continue;
    }
    if (const auto signal = signals.next()) {
      // A second request to stop in good order adds nothing; a second Ctrl-C is impatience.
      followed.killed = followed.killed || policy == OnSignal::kKill ||
                        (followed.signal != 0 && *signal == SIGINT);
      followed.signal = *signal;
      runner.send(followed.killed ? "kill" : "stop");
      on_signal(*signal);
      continue;
    }
    if (runner.over()) break;
    pollfd watched[2] = {{runner.output_fd(), POLLIN, 0}, {signals.fd(), POLLIN, 0}};
    ::poll(watched, 2, 1000);
  }
  followed.end = runner.end();
  return followed;
}

}  // namespace motley
