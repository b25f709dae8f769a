#pragma once
// What a shard holds and where: fixed when the plan is, so that a save allocates nothing.

#include <string>
#include <vector>

#include "core/plan.h"
#include "core/result.h"
#include "worker/checkpoint/store.h"

namespace motley {

/// One owned slice of one view.
struct ShardEntry {
  size_t view = 0;  ///< index into the views
  Slice slice;
  int64_t offset = 0;  ///< in the file
  int64_t bytes = 0;
  int64_t block_bytes = 0;    ///< what is hashed at a time
  std::vector<CopyRun> runs;  ///< from the view to the entry
};

struct ShardLayout {
  std::string header;  ///< of the file, with its length and padding
  std::vector<ShardEntry> entries;
  int64_t bytes = 0;             ///< of the file
  int64_t checkpoint_bytes = 0;  ///< estimate of all ranks' files together
};

/// "weight/norm.gain" for a whole tensor, else "weight/norm.gain@128": the slice's start, joined by
/// commas. Unique, as the owners' slices are disjoint.
std::string shard_key(const std::string& tensor, const std::vector<int64_t>& shape,
                      const Slice& slice);

/// The slices of `views` that `rank` owns. kInvalidSpec when it owns what no view holds.
Result<ShardLayout> lay_out_shard(const std::vector<StateView>& views,
                                  const std::vector<Ownership>& owners, Rank rank);

}  // namespace motley
