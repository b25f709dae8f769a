#pragma once
// Who owns how much of what several ranks hold, where optimizer state is sharded: ranks with more
// memory or quicker updates own more.
//
//   update + exchange = max u_r · o_r  +  max e_r · (h_r + n_r · o_r)     over the ranks r
//
// where rank r owns o_r elements, no more than its memory has room for; of what it shares with
// others it sends and receives all it holds, h_r, and of what it owns once more for each of the n_r
// holders beyond the second. Both maxima rise with the shares, so a bound on each is a bound on
// every share, whether shares within such bounds can be dealt is a flow from what is held alike to
// those who hold it, and the least sum of both bounds is convex in the first: a golden section
// search. Of the second the least is found by Newton's method on the cuts of flows that fail
// (Radzik, Parametric flows, weighted means of cuts, and fractional combinatorial optimization,
// 1993).

#include <limits>
#include <vector>

#include "core/ownership.h"

namespace motley {

inline constexpr double kUnlimited = std::numeric_limits<double>::infinity();

struct OwnerProblem {
  std::vector<HeldAlike> groups;
  // By rank:
  std::vector<double> most;      ///< elements that its memory has room for, or kUnlimited
  std::vector<double> update;    ///< seconds for an element owned
  std::vector<double> exchange;  ///< seconds for an element sent or received
};

struct OwnerDeal {
  std::vector<OwnerShares> shares;  ///< by group; none where memory has no room for all
  double seconds = 0;               ///< of updating and exchanging

  bool possible() const { return !shares.empty(); }
};

OwnerDeal best_owners(const OwnerProblem& problem);

}  // namespace motley
