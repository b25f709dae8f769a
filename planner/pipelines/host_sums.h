#pragma once
// What links between hosts leave of a step. A replica within a host has all layers there, so that
// the host exchanges all gradients; of one that goes over several, activations are on their links.
// The sooner a step is computed, the fewer samples can go over links, and the more hosts have to
// compute the others; and whoever lacks some layer sends something of each sample that it computes
// a part of, twice as much where it lacks what is tied (the embedding is the head's matrix), too,
// as such a replica neither begins nor ends there. A bound on any plan, however its stages are cut
// and shared.

#include <cstddef>
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
  /// Where so many hosts have everything, no more of them.
  struct Everywhere {
    double speed = 0;        ///< of these, samples in a second at most
    double block_speed = 0;  ///< of these, samples through all blocks in a second at most
    double exchanged = 0;    ///< seconds of each at least, if no other has anything
    double one_more = 0;     ///< as much longer if one more has everything
    double slope = 0;        ///< the same of each that has everything besides that one
  };
  /// How many hosts have everything, and how many what is tied: those and others.
  struct Holders {
    size_t everything = 0, tied = 0;
  };
  /// Of steps that are computed in some time.
  struct Known {
    double with_blocks = 0;  ///< hosts at least
    double over_links = 0;   ///< samples in a second of replicas over several hosts at least
    double exchanged = 0;    ///< seconds, the least so far
  };
  void find_everywhere(const std::vector<double>& speeds, bool any_owners);
  double least_exchanged(double computed) const;
  double least_exchanged(double computed, size_t everything, const Known& known) const;
  double exchanged_by_all_of(const Holders& holders, double computed, double with_blocks) const;
  double exchanged_on_average(const Holders& holders, double with_blocks) const;
  double hosts_with_blocks(double computed) const;
  double hosts_with_blocks(double computed, const Holders& holders) const;

  LeastSums sums_;
  double samples_;
  std::vector<double> sent_;         ///< of hosts, samples that each can send in a second, falling
  std::vector<size_t> alike_until_;  ///< of each host, the next that is not as good at either
  /// By how many hosts have what is tied: samples of replicas over several hosts in a second.
  std::vector<double> over_links_;
  double ends_ = 0;            ///< embedding and head of a sample, in samples through all blocks
  double blocks_seconds_ = 0;  ///< of exchanging all blocks, for each host more with them
  double tied_seconds_ = 0;    ///< the same of what is tied
  std::vector<double> block_speeds_;  ///< of hosts, samples through all blocks in a second, falling
  double part_of_blocks_ = 0, part_of_tied_ = 0;  ///< of all elements
  std::vector<Everywhere> everywhere_;
  std::vector<Step> steps_;  ///< rising in what they take to compute
};

}  // namespace motley
