#pragma once
// The fractional knapsack behind a packing: how much sets are worth together if parts of sets
// counted. A bound on any packing, and where most of its sets come from when there are too many
// devices to look at all packings.

#include <vector>

namespace motley {

struct FractionalPacking {
  double worth = 0;
  std::vector<double> copies;  ///< of each set; no more sets than groups have any
};

/// Maximises the sum of worth[i]·copies[i] where sets use needs[i][g] of the there[g] devices of
/// each group. By the simplex method (Dantzig 1963) from nothing on, after many pivots with Bland's
/// rule, so that it ends, and always in the same way.
FractionalPacking pack_fractions(const std::vector<std::vector<int>>& needs,
                                 const std::vector<int>& worth, const std::vector<int>& there);

}  // namespace motley
