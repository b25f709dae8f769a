#pragma once
// Brings a committed checkpoint to the hosts that do not see rank 0's file system, so that loading
// is always local.

#include <string>

#include "comm/communicator.h"
#include "core/file_system.h"
#include "core/result.h"
#include "worker/train/storage.h"

namespace motley {

/// Collective. The leader of every island that lacks `checkpoint` (or has another of that name)
/// gets it from rank 0, into the same `directory`. Each rank learns what became of its own part:
/// kCorrupt when rank 0's is damaged, on rank 0 or where it did not arrive as it was saved; kIo on
/// rank 0 when it cannot be read, elsewhere when it cannot be written; kPeerLost where rank 0 has
/// nothing to send.
Result<Unit> copy_checkpoint(Communicator& world, const Storage& storage, FileSystem& fs,
                             const std::string& directory, const std::string& checkpoint);

}  // namespace motley
