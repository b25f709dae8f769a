#pragma once
// Parts of logical tensors. Tensor, pipeline and data parallelism, sharded state and checkpoints
// all ask one question: who holds which slice?

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/ids.h"
#include "core/result.h"

namespace motley {

/// The box [start, start + extent) of a logical tensor, one entry a dimension.
struct Slice {
  std::vector<int64_t> start;
  std::vector<int64_t> extent;

  int64_t elements() const;
  bool operator==(const Slice&) const = default;
};

Slice whole(const std::vector<int64_t>& shape);

/// The product of numbers that nobody has checked yet; nothing if one is below 1 or it overflows.
std::optional<int64_t> checked_product(const std::vector<int64_t>& factors);

/// Whether `part` lies within `all`. False for another number of dimensions.
bool contains(const Slice& all, const Slice& part);

/// The common part; nothing when disjoint.
bool intersect(const Slice& a, const Slice& b, Slice* common);

/// A run of elements that is contiguous both inside slice `from` and inside slice `to` (both stored
/// row-major).
struct CopyRun {
  int64_t from_offset = 0;  ///< in elements, from the beginning of `from`
  int64_t to_offset = 0;
  int64_t count = 0;
};
/// What to copy to bring the common part of two slices of one tensor from one to the other, both
/// offsets rising; empty when disjoint.
std::vector<CopyRun> copy_runs(const Slice& from, const Slice& to);
/// The same for the part of it that lies within `box`.
std::vector<CopyRun> copy_runs(const Slice& from, const Slice& to, const Slice& box);

/// kInvalidSpec naming the first gap or overlap unless `slices` cover `shape` exactly once. Safe on
/// numbers nobody has checked; O(n log n) in the number of slices.
Result<Unit> check_tiles(const std::string& tensor, const std::vector<int64_t>& shape,
                         const std::vector<Slice>& slices);

}  // namespace motley
