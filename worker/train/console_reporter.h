#pragma once
// Without a runner: rank 0 writes metrics.jsonl of the run (core/FORMATS.md) and, now and then, a
// line of progress on stderr. The other ranks are silent. All count what their steps took, for the
// report.

#include <fstream>
#include <string>

#include "core/attempt.h"
#include "core/file_system.h"
#include "core/ids.h"
#include "core/step_statistics.h"
#include "worker/train/reporter.h"

namespace motley {

class ConsoleReporter final : public Reporter {
 public:
  ConsoleReporter(const Attempt& attempt, int rank, FileSystem& fs);

  void progress() override {}
  void phase(const std::string&, int64_t) override {}
  Result<Unit> begin_after(int64_t step) override;
  void step(const StepReport& report) override;
  void saved(const SavedReport& report) override;
  void skipped(const SkippedReport& report) override;
  void evaluated(const EvaluatedReport& report) override;

  /// What this rank did.
  RankActual actual() const { return statistics_.ranks()[static_cast<size_t>(rank_)]; }

 private:
  void note_lost_metrics();

  const Attempt& attempt_;
  const int rank_;
  const bool speaks_;
  FileSystem& fs_;
  const std::string path_;
  StepStatistics statistics_;
  std::fstream metrics_;
  bool metrics_lost_ = false;  ///< which was said
  int64_t last_step_ = -1;     ///< of the last line: an evaluation of it may be added there
  Nanos last_progress_{0};
};

}  // namespace motley
