#pragma once
// metrics.jsonl of a run: one object a step, in order, each step once (core/FORMATS.md).

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/ids.h"
#include "core/rehearsal.h"
#include "core/result.h"
#include "core/wire.h"
#include "scheduler/launch/child_process.h"

namespace motley {

/// One line.
struct MetricsRow {
  int64_t step = 0;
  double loss = 0;
  std::string loss_bits;  ///< 16 hexadecimal digits
  std::optional<double> eval_loss;
  double step_seconds = 0;
  bool special = false;  ///< an evaluation or a save fell into it
  Epoch epoch;
  SectionCount paced;  ///< of this attempt up to this step
};

/// Complete lines in order; an incomplete last one is left out. Empty without a file.
std::vector<MetricsRow> read_metrics(const std::string& path);

/// The text of the lines up to and including `step`.
std::string metrics_until(const std::string& path, int64_t step);

class MetricsLog {
 public:
  /// Appends to `path`. Steps from the first one added on are cut from what is there already: an
  /// attempt repeats what came after the checkpoint it resumed.
  MetricsLog(std::string path, Epoch epoch) : path_(std::move(path)), epoch_(epoch) {}

  /// Rank 0's report of a step; `unix_seconds` is when, `paced` of all ranks in this attempt so
  /// far.
  Result<Unit> add(const StepReport& report, double unix_seconds, const SectionCount& paced);
  /// Adds the evaluation's loss to the line of its step, the last one written.
  Result<Unit> add_evaluation(int64_t step, double loss);

 private:
  Result<Unit> open_before(int64_t step);

  std::string path_;
  Epoch epoch_;
  Fd file_;
  int64_t last_step_ = -1;
  int64_t end_ = 0;  ///< size of the file
};

}  // namespace motley
