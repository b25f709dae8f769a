#pragma once
// What a run came to: measured, not predicted. The source of report.json, of the report people read
// and of the last line of `motley run --json` (DESIGN.md §6).

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/profile.h"
#include "core/result.h"

namespace motley {

/// What one rank did in the last attempt, per ordinary step (no evaluation, no save).
struct RankActual {
  int rank = 0;
  std::string device;
  double compute_seconds = 0;  ///< mean
  double wait_seconds = 0;     ///< mean, in communication
  double update_seconds = 0;   ///< mean
  int64_t samples = 0;         ///< computed in all, of all steps
  int64_t overruns = 0;        ///< paced sections slower than what they stand for
  int64_t sections = 0;
};

struct RunSummary {
  std::string run_dir;
  std::string state;  ///< "finished" | "stopped" | "failed"
  int64_t steps = 0;  ///< done
  double first_loss = 0;
  double final_loss = 0;
  std::optional<double> eval_loss;  ///< the last
  double samples_per_second = 0;    ///< global_batch / actual_step_seconds
  double solo_sum_samples_per_second = 0;
  double efficiency = 0;                ///< samples_per_second / solo sum
  double integer_bound_efficiency = 0;  ///< what a perfect deal of whole grains could reach
  std::optional<double> equal_split_samples_per_second;  ///< measured; empty: not tried
  double predicted_step_seconds = 0;
  double actual_step_seconds = 0;  ///< median after 5 steps, without evaluations and saves
  int restarts = 0;
  std::string weights_xxh3;
  std::string plan_id;
  Evidence kind = Evidence::kMeasured;  ///< of the devices: their weakest
  std::vector<RankActual> ranks;
};

/// Members named as the fields; empty optionals are null.
nlohmann::json to_json(const RunSummary& summary);
Result<RunSummary> run_summary_from_json(const nlohmann::json& json);

}  // namespace motley
