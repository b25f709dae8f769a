#pragma once
// Keeps account of one attempt while its ranks tell of it: metrics.jsonl, progress.json, and what
// is shown to people.

#include <optional>
#include <string>

#include "core/attempt.h"
#include "scheduler/run/attempt_follower.h"
#include "scheduler/run/metrics_log.h"
#include "scheduler/run/progress_file.h"
#include "scheduler/run/progress_line.h"
#include "scheduler/run/progress_tracker.h"

namespace motley {

class AttemptListener {
 public:
  /// Borrows the attempt and the line.
  AttemptListener(const Attempt& attempt, const AttemptOptions& options, ProgressLine& line);

  /// Before any rank can say so.
  void enter(const std::string& phase);
  void on_line(const RunnerLine& line);
  void on_signal(int signal);
  AttemptRecord take() { return std::move(record_); }

 private:
  void on_phase(const std::string& data);
  void on_step(const std::string& data);
  void on_evaluated(const std::string& data);
  void on_saved(const std::string& data);
  void on_skipped(const std::string& data);
  void on_done(const std::string& data);
  void keep(const Result<Unit>& written);
  void keep_progress();

  const Attempt& attempt_;
  const AttemptOptions options_;
  ProgressLine& line_;
  AttemptRecord record_;
  std::optional<MetricsLog> metrics_;
  ProgressTracker tracker_;
  std::optional<ProgressFile> file_;
  bool notified_ = false;
  bool complained_ = false;
};

}  // namespace motley
