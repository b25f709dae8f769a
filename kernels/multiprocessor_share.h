#pragma once
// How the multiprocessors of a GPU are dealt out to devices that share it.

#include <string>

#include "core/result.h"
#include "core/spec/fleet_spec.h"

namespace motley {

/// What a GPU can be divided into, as its driver says: groups of equal size that only go whole. A
/// few multiprocessors may be in none.
struct MultiprocessorGroups {
  std::string gpu;  ///< its name, for messages
  int multiprocessors = 0;
  int groups = 0;
  int group_size = 0;
};

/// Groups [first, first + count).
struct GroupRange {
  int first = 0;
  int count = 0;
  bool operator==(const GroupRange&) const = default;
};

/// The groups that make up a share; those of shares in a fleet's order never overlap. kInvalidSpec
/// for one that is not of whole groups, saying the nearest that are, or goes beyond the last.
Result<GroupRange> groups_of(const ShareSpec& share, const MultiprocessorGroups& gpu);

}  // namespace motley
