#pragma once
// The traces of a run's ranks as one document (core/FORMATS.md, "trace").

#include <string>

#include "core/result.h"
#include "scheduler/run/run_directory.h"

namespace motley {

struct MergedTrace {
  std::string text;       ///< a JSON array of events
  std::string directory;  ///< of the attempt
  std::string missing;    ///< ranks without a trace here, "1, 3"
};

/// Of the newest attempt of which this host has a trace. kNotFound where there is none, kCorrupt
/// naming a file that no rank wrote.
Result<MergedTrace> merged_trace(const RunDirectory& run);

}  // namespace motley
