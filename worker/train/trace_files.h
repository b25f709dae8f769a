#pragma once
// Where the traces of an attempt go when it ends.

#include "comm/communicator.h"
#include "core/attempt.h"
#include "core/file_system.h"
#include "core/result.h"
#include "worker/train/storage.h"
#include "worker/train/trace.h"

namespace motley {

/// Writes this rank's trace beside its attempt's plan, on its own host.
Result<Unit> write_trace(const Attempt& attempt, Rank rank, const Trace& trace, FileSystem& fs);

/// Collective, once all have written theirs: ranks whose files rank 0 does not see send it theirs,
/// so that `motley export trace` finds all.
Result<Unit> collect_traces(const Attempt& attempt, Communicator& world, const Storage& storage,
                            const Trace& trace, FileSystem& fs);

}  // namespace motley
