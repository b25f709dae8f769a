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
/// gets it from rank 0, into the same `directory`. Each rank learns what became of its own part;
/// kCorrupt when the checkpoint cannot be read, or did not arrive as it was saved.
Result<Unit> copy_checkpoint(Communicator& world, const Storage& storage, FileSystem& fs,
                             const std::string& directory, const std::string& checkpoint);

}  // namespace motley
