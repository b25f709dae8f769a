#pragma once
// GPUs of a plan that sum gradients among themselves (NCCL): the ranks of a device island hold the
// very same slices on like GPUs. To the hosts, who sum what is between islands, each island is one
// rank, its speaker: it hands in the island's sum and takes the total for all of it.

#include <vector>

#include "core/plan.h"
#include "core/spec/fleet_spec.h"

namespace motley {

class DeviceIslands {
 public:
  /// None: every rank speaks for itself.
  DeviceIslands() = default;
  /// Each the rising ranks of one island, two at least; no rank is in two.
  explicit DeviceIslands(std::vector<std::vector<int>> islands);

  const std::vector<std::vector<int>>& all() const { return all_; }
  /// The ranks of its island; null: it is in none.
  const std::vector<int>* of(int rank) const;
  /// Who speak for these ranks, rising, each once: of an island `preferred` if that is one of it,
  /// or else its first rank.
  std::vector<int> speakers(const std::vector<int>& ranks, int preferred = -1) const;

 private:
  std::vector<std::vector<int>> all_;
  std::vector<int> number_of_;  ///< by rank, -1: in none; shorter where the last ranks are
};

/// Those that a valid plan's ranks form if NCCL connects them: like whole GPUs, on one host or,
/// where nothing is compressed, on several, none of them twice. Where PowerSGD compresses and
/// optimizer state is sharded, none.
DeviceIslands device_islands(const Plan& plan, const FleetSpec& fleet);

/// As few ranks may sum through hosts where all devices of the fleet hold the same: one of each
/// type of GPU, and every device that is in no island.
int fewest_speakers(const FleetSpec& fleet);

}  // namespace motley
