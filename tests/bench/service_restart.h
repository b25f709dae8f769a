#pragma once
// A coordinator that is killed and started again while jobs run.

#include <vector>

#include "core/result.h"

namespace motley {

struct RestartFigures {
  int running = 0;                   ///< jobs, when it was killed
  int undisturbed = 0;               ///< of them, run on in the same attempt under the next one
  int waiting = 0;                   ///< jobs, on hold
  double serving_again_seconds = 0;  ///< from the start of the next one to its first answer
  double memory_bytes = 0;  ///< resident, of the next one, when all of its jobs were listed
};

/// With a hundred programs that run, and then with 100,000 jobs beside them. Needs motley and
/// motley-worker beside the folder of this program.
Result<std::vector<RestartFigures>> measure_restarts();

}  // namespace motley
