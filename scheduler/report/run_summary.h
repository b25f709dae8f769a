#pragma once
// What a run came to: measured, not predicted. The source of report.json, of the report people read
// and of the last line of `motley run --json` (DESIGN.md §6).

#include <cstdint>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/attempt_result.h"
#include "core/profile.h"
#include "core/rehearsal.h"
#include "core/result.h"
#include "core/set_aside.h"

namespace motley {

/// The baseline: what the same devices did where each got the same.
struct EqualSplit {
  std::string form;  ///< "plain data parallel, …" or "pipeline of …": planner/plain/search.h
  double samples_per_second = 0;
  std::string not_measured;  ///< why there are neither form nor speed; empty: there are
};

/// A device that had less memory than was planned with.
struct OutOfMemory {
  std::string device, type;
  int micro_batch = 0;  ///< at which it ran out
  int then = 0;         ///< with which the run went on; 0: without the device
};

/// What is not known is empty: null in JSON, absent or "-" for people, never a zero.
struct RunSummary {
  std::string run_dir;
  std::string state;  ///< "finished" | "stopped" | "failed" | "running" | "interrupted"
  int64_t steps = 0;  ///< done
  double first_loss = std::numeric_limits<double>::quiet_NaN();  ///< not finite: null in JSON
  double final_loss = std::numeric_limits<double>::quiet_NaN();
  std::optional<double> eval_loss;           ///< the last
  std::optional<double> samples_per_second;  ///< global_batch / actual_step_seconds
  std::optional<double> solo_sum_samples_per_second;
  std::optional<double> efficiency;  ///< samples_per_second / solo sum; empty also after a
                                     ///< rehearsal that is not trustworthy
  std::optional<double> integer_bound_efficiency;  ///< what a perfect deal of whole grains could
                                                   ///< reach
  std::optional<EqualSplit> equal_split;           ///< empty: not tried
  std::optional<double> predicted_step_seconds;
  std::optional<double> actual_step_seconds;  ///< median after 5 steps, without evaluations, saves
  std::optional<int> restarts;                ///< by itself, of the last invocation
  std::string weights_xxh3;                   ///< empty: not known
  std::string plan_id;                        ///< empty: not known
  Evidence kind = Evidence::kMeasured;        ///< of the devices: their weakest
  SectionCount paced;                         ///< of all attempts
  std::vector<RankActual> ranks;              ///< in the last attempt
  std::vector<SetAside> set_aside;            ///< checkpoints that were found damaged
  std::vector<OutOfMemory> out_of_memory;     ///< in the last invocation, in order
};

/// Members named as the fields, but `sections` and `overruns` for `paced`, and for `equal_split`
/// `equal_split_samples_per_second`, `equal_split_form` and `equal_split_not_measured`.
nlohmann::json to_json(const RunSummary& summary);
Result<RunSummary> run_summary_from_json(const nlohmann::json& json);

}  // namespace motley
