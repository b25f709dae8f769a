#pragma once
// Where a run is while an attempt of it is under way: progress.json of its directory
// (core/FORMATS.md), and what is shown of it.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/ids.h"
#include "core/result.h"
#include "scheduler/report/straggler.h"

namespace motley {

/// Seconds are means over the last ordinary steps; what is not known is empty.
struct RankProgress {
  int rank = 0;
  std::string device, host, type;
  std::optional<double> compute_seconds, wait_seconds, update_seconds, input_seconds;
  std::optional<Bytes> memory;  ///< of the device: as the rank says, else as the plan counts it
  std::optional<Bytes> memory_limit;

  std::optional<RankTime> time() const;
};

struct RunProgress {
  Epoch epoch;
  std::string phase;  ///< of rank 0 (core/reports.h), "launching" before; of a program: "setup",
                      ///< "running"
  double begun = 0;   ///< when the attempt was, in seconds since 1970
  // Of a program that says nothing of its steps nothing below is known.
  std::optional<int64_t> step = {};
  std::optional<int64_t> steps = {};  ///< empty where only a program knows
  std::optional<double> loss = {};    ///< empty where it is not finite, too
  std::optional<double> samples_per_second = {};
  /// Median of the last ordinary steps, on the ranks' clock.
  std::optional<double> step_seconds = {};
  std::optional<double> eta_seconds = {};  ///< to the last step, by this machine's clock
  std::vector<RankProgress> ranks = {};

  /// Nothing before all ranks have told of a step.
  std::optional<Straggler> straggler() const;
};

/// "step 120/400  30 %  loss 3.2140  82.1 samples/s  1m05s left"; the phase before the first step.
std::string progress_text(const RunProgress& progress);

nlohmann::json to_json(const RunProgress& progress);
/// kInvalidSpec naming the fault's JSON pointer.
Result<RunProgress> run_progress_from_json(const nlohmann::json& json);

}  // namespace motley
