#pragma once
// Which ranks see the same directory: hosts need not share a file system.

#include <string>
#include <vector>

#include "comm/communicator.h"
#include "core/file_system.h"
#include "core/result.h"

namespace motley {

/// Ranks that see one another's files form an island; its lowest rank leads it. Rank 0's island
/// holds the run.
struct Storage {
  std::vector<int> leaders;  ///< of each rank's island, by rank

  int leader_of(int rank) const { return leaders[static_cast<size_t>(rank)]; }
  bool leads(int rank) const { return leader_of(rank) == rank; }
  bool with_root(int rank) const { return leader_of(rank) == 0; }
  /// The leaders of all islands but rank 0's, rising.
  std::vector<int> other_leaders() const;
};

/// Collective. Every rank makes `directory` and writes a probe file with a name nobody else has,
/// then looks for the others'. Opening by name, not listing: network file systems list late.
Result<Storage> probe_storage(Communicator& world, FileSystem& fs, const std::string& directory);

}  // namespace motley
