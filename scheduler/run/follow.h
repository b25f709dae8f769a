#pragma once
// Waiting for a runner and for signals at the same time.

#include <functional>

#include "scheduler/run/signal_inbox.h"
#include "scheduler/runner/runner_client.h"

namespace motley {

enum class OnSignal {
  kStopThenKill,  ///< the first asks for a checkpoint and an end, a second SIGINT ends it now
  kKill,          ///< nothing worth saving
};

struct Followed {
  AttemptEnd end;
  int signal = 0;       ///< the last one taken; 0: none
  bool killed = false;  ///< because of it
};

/// Passes every line to `on_line` until the attempt is over; `on_signal` says that one was taken.
Followed follow(RunnerClient& runner, SignalInbox& signals, OnSignal policy,
                const std::function<void(const RunnerLine&)>& on_line,
                const std::function<void(int)>& on_signal);

}  // namespace motley
