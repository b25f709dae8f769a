#pragma once
// `motley simulate --trace`: the job service over a trace of jobs, in virtual time.

#include <string>

#include "core/result.h"

namespace motley {

struct TraceOptions {
  std::string trace;    ///< path
  std::string speeds;   ///< of a .tsv trace: path
  std::string fleet;    ///< path
  std::string policy;   ///< empty: all of them
  std::string convert;  ///< also writes the trace as JSON Lines: path
  bool mix = false;     ///< jobs may take several types, whatever the trace says
  bool json = false;
};

/// The exit code.
Result<int> simulate_trace_command(const TraceOptions& options);

}  // namespace motley
