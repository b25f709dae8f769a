#pragma once
// Where training goes on: rank 0 chooses a checkpoint, hosts that lack it get it, every rank loads
// what it holds; one that is damaged or cannot be read sends all ranks to the next older, and a
// damaged one is set aside (core/set_aside.h).

#include <string>

#include "comm/communicator.h"
#include "core/attempt.h"
#include "core/file_system.h"
#include "core/result.h"
#include "worker/train/rank_parts.h"
#include "worker/train/reporter.h"
#include "worker/train/storage.h"

namespace motley {

struct ResumePoint {
  int64_t step = 0;       ///< steps done
  std::string directory;  ///< empty: from the beginning
};

/// Collective. Fills the engine's state per attempt.resume_checkpoint: a name, "newest" (or empty)
/// or "none". kInvalidSpec when the checkpoint is of another model, data, seed or batch, or, in
/// exact, of another arithmetic class; kCorrupt when there are checkpoints, or there were before
/// they were set aside, but none can be loaded; kIo when rank 0 cannot tell whether there are;
/// kNotFound when there are, but on other hosts only. Rank 0's `reporter` learns what is skipped.
Result<ResumePoint> resume(const Attempt& attempt, RankParts& parts, Communicator& world,
                           const Storage& storage, Reporter& reporter, FileSystem& fs);

}  // namespace motley
