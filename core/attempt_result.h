#pragma once
// What an attempt leaves for the report of its run, attempts/<epoch>/result.json (core/FORMATS.md,
// "attempt result"): written when it ends, by whoever heard all its ranks: `motley`, or rank 0 of a
// run by hand.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/file_system.h"
#include "core/rehearsal.h"
#include "core/result.h"

namespace motley {

/// What one rank did in an attempt; seconds are means per ordinary step (no evaluation, no save),
/// empty where there was none.
struct RankActual {
  int rank = 0;
  std::string device;
  std::optional<double> compute_seconds;
  std::optional<double> wait_seconds;  ///< in communication
  std::optional<double> update_seconds;
  std::optional<double> input_seconds;
  int64_t samples = 0;  ///< computed in all, of all steps
  SectionCount paced;
};

nlohmann::json to_json(const RankActual& rank);
/// kCorrupt as core/json_fields.h says.
Result<RankActual> rank_actual_from_json(const nlohmann::json& json);

struct AttemptResult {
  std::vector<RankActual> ranks;
  /// Mean over ordinary steps of what the rank that waited least did wait: even the last one to
  /// come waits for what travels. Empty where there was no such step.
  std::optional<double> least_wait_seconds;
  std::string weights_xxh3;  ///< empty: it did not finish the run
};

/// In the attempt's directory, durably.
Result<Unit> write_attempt_result(FileSystem& fs, const std::string& attempt_directory,
                                  const AttemptResult& result);
/// kNotFound when there is none: the attempt goes on, or nobody saw its end.
Result<AttemptResult> read_attempt_result(FileSystem& fs, const std::string& attempt_directory);

}  // namespace motley
