#pragma once
// Into how long chunks sums are cut: in short ones ranks work on many at once, but what leaders
// have under way together must fill the links between them.

#include <cstdint>
#include <vector>

#include "core/reduction.h"

namespace motley {

/// How a class lies over islands.
struct ClassSpread {
  int islands = 1;
  int most_leaders = 1, fewest_leaders = 1;  ///< of an island
  double round_trip_bytes = 0;               ///< what the slowest of their links carries in one
};
ClassSpread spread_of(const std::vector<IslandPart>& parts, const Islands& islands);

/// Of each chunk but the last; with `codec` if they are compressed.
int64_t chunk_elements(int64_t elements, int element_bytes, const ClassSpread& spread,
                       const ReductionOptions& options = {}, const CodecSpec& codec = {});

/// At most a spread's round_trip_bytes, whichever of these hosts have a part in a plan and as long
/// as all of them have one in the class.
double most_round_trip_bytes(const std::vector<LinkProfile>& links);

}  // namespace motley
