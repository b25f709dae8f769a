#pragma once

#include <string>

#include "core/result.h"
#include "scheduler/run/run_directory.h"

namespace motley {

inline constexpr int64_t kMostSampledBytes = 1'000'000;

struct SampleRequest {
  int64_t bytes = 200;
  std::string prompt;     ///< empty: the worker's own
  std::string rsh_agent;  ///< empty: ssh
};

/// Text and a line end, from the run's newest checkpoint, by `motley-worker sample` on a host that
/// has it: this one, else the one of rank 0.
Result<std::string> sample_text(const RunDirectory& run, const SampleRequest& request);

}  // namespace motley
