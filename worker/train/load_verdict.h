#pragma once
// How ranks agree on what became of loading a checkpoint, and whose copy of it is bad.

#include <map>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "core/result.h"
#include "worker/train/storage.h"

namespace motley {

/// What one rank says after it has tried to load.
struct LoadVerdict {
  enum class Kind {
    kLoaded,
    kDamaged,     ///< the content is wrong
    kUnreadable,  ///< it does not come from the disk, or from rank 0, which may be the reader's
                  ///< fault
  };
  Kind kind = Kind::kLoaded;
  int island = 0;   ///< its leader; of a damaged checkpoint: whose
  std::string why;  ///< one line
};

/// Collective. Every rank brings what became of copying the checkpoint to its host
/// (checkpoint_copy.h) and then of loading it. What is no fault of the checkpoint ends the run on
/// all ranks; else their verdicts, by rank.
Result<std::vector<LoadVerdict>> load_verdicts(Communicator& world, const Storage& storage,
                                               const Result<Unit>& copied,
                                               const Result<Unit>& loaded);

bool all_loaded(const std::vector<LoadVerdict>& verdicts);

/// Why a checkpoint is damaged, by leader of the island that has it so.
std::map<int, std::string> damaged_copies(const std::vector<LoadVerdict>& verdicts);

/// The first rank's reason why it cannot be read; empty when each could, or found it damaged.
std::string why_unreadable(const std::vector<LoadVerdict>& verdicts);

}  // namespace motley
