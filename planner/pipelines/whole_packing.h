#pragma once
// Packings of whole sets where there are too many devices to look at all of them: branch and bound
// (Land & Doig 1960) on the fractional packing.

#include <cstdint>
#include <vector>

namespace motley {

/// Copies of each set, worth `enough` together, of sets that use needs[i][g] of the there[g]
/// devices of each group; none where there are no such copies or so many fractional packings did
/// not find them.
std::vector<int> pack_whole(const std::vector<std::vector<int>>& needs,
                            const std::vector<int>& worth, const std::vector<int>& there,
                            int64_t enough, int most_tries);

}  // namespace motley
