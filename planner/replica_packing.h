#pragma once
// Which replicas to make of the devices: a knapsack over the number of devices in each group.

#include <vector>

#include "planner/replica_designs.h"

namespace motley {

struct PackingProblem {
  GroupCounts devices;   ///< there are
  int most_devices = 0;  ///< to be used
  int grains = 0;        ///< of the step
  int grain = 0;         ///< samples
  int missing = 0;       ///< samples of the last grain, whichever replica takes it
  int most_replicas = 0;
};

/// Sets of devices, by number; in rising order.
using Packing = std::vector<size_t>;

/// For each number of replicas from 1 on the sets that compute all grains soonest, one after the
/// other or none: an empty packing. Seconds are right to a millionth.
std::vector<Packing> best_packings(const PackingProblem& problem, std::vector<ReplicaDesigns>& sets,
                                   double least_seconds);

}  // namespace motley
