#pragma once
// Where an attempt is, from what its ranks report.

#include <deque>
#include <optional>
#include <vector>

#include "core/attempt.h"
#include "core/clock.h"
#include "core/reports.h"
#include "core/wire.h"
#include "scheduler/report/run_progress.h"

namespace motley {

class ProgressTracker {
 public:
  /// An attempt that begins now; `begun` is when, in seconds since 1970.
  ProgressTracker(const Attempt& attempt, double begun);

  void add(const PhaseReport& report);
  /// `now` of a steady clock, by which the time left is counted.
  void add(const StepReport& report, Nanos now);

  /// All but the ranks' seconds: cheap enough for every step.
  const RunProgress& so_far() const { return progress_; }
  RunProgress with_ranks() const;

 private:
  /// The last ordinary steps of a rank.
  using Recent = std::deque<StepReport>;
  void add_to_pace(const StepReport& report, Nanos now);

  RunProgress progress_;
  int global_batch_;
  std::vector<Recent> recent_;
  std::optional<double> pace_;  ///< seconds between two reports here: a mean that forgets
  std::optional<Nanos> last_step_;
};

}  // namespace motley
