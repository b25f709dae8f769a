#pragma once
// What links between hosts leave of a step. A replica within a host has all layers there, so that
// the host exchanges all gradients; of one that goes over several, activations are on their links.
// The sooner a step is computed, the fewer samples can go over links, and the more hosts have to
// compute the others: a bound on any plan, however its stages are cut and shared.

#include <vector>

#include "planner/pipelines/least_sums.h"

namespace motley {

class HostSums {
 public:
  /// By `costs` before anything was learnt of memory. `any_owners`: of shared state, too.
  HostSums(const PlanRequest& request, const std::vector<DeviceGroup>& groups,
           const PipelineCosts& costs, const LeastSums& sums, bool any_owners);

  /// The least a step takes that is computed in no less than `computed` seconds and whose gradients
  /// are exchanged in no less than `exchanged`.
  double step_seconds(double computed, double exchanged) const;

 private:
  struct Step {
    double computed = 0;   ///< seconds, or longer
    double exchanged = 0;  ///< seconds at least, unless it is computed in longer than the next
  };
  double least_exchanged(double computed) const;
  double hosts_with_blocks(double computed) const;

  double samples_;
  double over_links_ = 0;             ///< samples that can go from host to host in a second
  double blocks_seconds_ = 0;         ///< of exchanging all blocks, for each host more with them
  std::vector<double> block_speeds_;  ///< of hosts, samples through all blocks in a second, falling
  std::vector<Step> within_;          ///< where no more than 0, 1, 2 … hosts have everything
  std::vector<Step> steps_;           ///< rising in what they take to compute
};

}  // namespace motley
