#pragma once
// `run.sh planner --stress`: grids of models and devices that are made up
// (tests/bench/stress_profiles.h), from 8 to 16,384 devices.

#include <optional>
#include <string>

namespace motley {

struct StressRequest {
  bool json = false;
  std::string only = {};  ///< what names begin with
};

/// Nothing where no --stress is asked for: [--stress [BEGIN OF A NAME]] [--json].
std::optional<StressRequest> stress_arguments(int argc, char** argv);

/// The exit status.
int run_stress(const StressRequest& request);

}  // namespace motley
