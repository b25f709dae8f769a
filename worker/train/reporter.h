#pragma once
// Where a rank's account of itself goes: to its runner, or to the terminal and the run's directory.

#include <string>

#include "core/reports.h"
#include "core/result.h"
#include "core/wire.h"

namespace motley {

class Reporter {
 public:
  virtual ~Reporter() = default;

  /// Work went on.
  virtual void progress() = 0;
  /// `phase` begins after `step` steps (core/reports.h).
  virtual void phase(const std::string& phase, int64_t step) = 0;
  /// Training goes on after `step` (0: from the beginning): what was reported later is void.
  virtual Result<Unit> begin_after(int64_t step) = 0;
  virtual void step(const StepReport& report) = 0;
  virtual void saved(const SavedReport& report) = 0;          ///< rank 0
  virtual void skipped(const SkippedReport& report) = 0;      ///< rank 0
  virtual void evaluated(const EvaluatedReport& report) = 0;  ///< rank 0
};

}  // namespace motley
