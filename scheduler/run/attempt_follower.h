#pragma once
// Runs one training attempt and keeps account of it.

#include <optional>
#include <string>

#include "core/attempt.h"
#include "core/clock.h"
#include "core/result.h"
#include "core/step_statistics.h"
#include "scheduler/run/follow.h"
#include "scheduler/run/progress_line.h"
#include "scheduler/run/signal_inbox.h"

namespace motley {

struct AttemptOptions {
  std::string directory;  ///< of its documents and logs
  std::string rsh_agent;
  int lock_fd = -1;           ///< held by the runner too; -1: none
  std::string title;          ///< before each progress line
  std::string metrics_path;   ///< empty: steps are not recorded
  std::string progress_path;  ///< empty: nobody is told how far it is
  bool shows_steps = true;    ///< as they come, on the progress line
  OnSignal on_signal = OnSignal::kStopThenKill;
};

struct AttemptRecord {
  explicit AttemptRecord(const Plan& plan) : statistics(plan) {}

  Followed followed;
  StepStatistics statistics;
  std::optional<int64_t> began_after;  ///< steps done when training began; empty: it never did
  int64_t saved_step = 0;              ///< of the newest checkpoint it committed; 0: none
  std::optional<double> eval_loss;
  std::string weights_xxh3;

  bool finished() const { return followed.end.outcome == Outcome::kFinished; }
  bool stopped() const { return followed.end.outcome == Outcome::kStopped; }
};

/// Writes attempt.json and plan.json, starts a runner, and returns when the attempt is over. A
/// failed attempt is a record, not an error.
Result<AttemptRecord> run_training_attempt(const Attempt& attempt, const AttemptOptions& options,
                                           SignalInbox& signals, ProgressLine& line);

}  // namespace motley
