#pragma once
// Which replicas to make of the devices: a knapsack over the number of devices in each group.

#include <vector>

#include "planner/pipelines/replica_designs.h"

namespace motley {

struct PackingProblem {
  GroupCounts devices;   ///< there are
  int most_devices = 0;  ///< to be used
  int grains = 0;        ///< of the step
  int grain = 0;         ///< samples
  int missing = 0;       ///< samples of the last grain, whichever replica takes it
  int least_replicas = 1;
  int most_replicas = 0;
  double limit = kNever;    ///< packings that take as long are of no use
  double precision = 1e-6;  ///< of the least time in which packings compute all grains
};

/// Sets of devices, by number; in rising order.
using Packing = std::vector<size_t>;

struct Packings {
  std::vector<Packing> found;
  /// No packing of these sets computes all grains in less, sums of gradients apart.
  double least_seconds = 0;
};

/// Whether there are so few devices that packings can be looked at one by one.
bool few_enough_to_enumerate(const GroupCounts& devices);

/// Of few devices, for each number of replicas the sets that compute all grains soonest, to a
/// share of that time, by dynamic programming. Of many, one packing: most of it the fractional
/// one's (planner/pipelines/packing_bound.h), what is left filled with the sets that are worth
/// most. `least_seconds`: no packing is quicker.
Packings best_packings(const PackingProblem& problem, std::vector<ReplicaDesigns>& sets,
                       double least_seconds);

}  // namespace motley
