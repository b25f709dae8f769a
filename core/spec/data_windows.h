#pragma once
// How a job's text is cut into samples: windows of context + 1 tokens every `context` bytes.

#include <cstdint>

#include "core/result.h"
#include "core/spec/job_spec.h"

namespace motley {

struct DataWindows {
  int64_t train = 0;
  int64_t eval = 0;  ///< the last `held_out` share of them all, at least one
};

/// Of `bytes` bytes of text; kInvalidSpec when they are fewer than two windows.
Result<DataWindows> cut_windows(const DataSpec& data, Bytes bytes, int context);

}  // namespace motley
