#pragma once
// Which replicas to make of the devices: a knapsack over the number of devices in each group.

#include <limits>
#include <vector>

#include "planner/pipelines/replica_designs.h"

namespace motley {

/// Seconds that stand for never.
inline constexpr double kNobodyWaits = 1e15;

struct GrainLimit {
  double seconds = 0;  ///< within which they are computed
  int grain = 0;       ///< samples
  int missing = 0;     ///< samples that one of the grains lacks
  int most = 0;        ///< grains
};

/// Sets of devices that may be replicas, and how long each takes.
class ReplicaSets {
 public:
  virtual ~ReplicaSets() = default;
  virtual size_t count() const = 0;
  virtual const GroupCounts& devices(size_t set) const = 0;
  virtual int stages(size_t set) const;  ///< as many as its devices, unless some share one
  virtual double seconds(size_t set, int samples) = 0;  ///< kNever: it cannot compute them
  /// No more, and perhaps known sooner.
  virtual double seconds_at_least(size_t set, int samples) { return seconds(set, samples); }
  /// The most grains; 0: not one.
  virtual int grains_within(size_t set, const GrainLimit& limit) = 0;
  /// No less, and perhaps known sooner.
  virtual int grains_at_most(size_t set, const GrainLimit& limit) {
    return grains_within(set, limit);
  }
};

/// By the designs that were found.
class DesignedSets : public ReplicaSets {
 public:
  explicit DesignedSets(std::vector<ReplicaDesigns>* designs) : designs_(designs) {}
  size_t count() const override { return designs_->size(); }
  const GroupCounts& devices(size_t set) const override { return (*designs_)[set].devices(); }
  double seconds(size_t set, int samples) override { return (*designs_)[set].seconds(samples); }
  int grains_within(size_t set, const GrainLimit& limit) override {
    return (*designs_)[set].grains_within(limit.seconds, limit.grain, limit.missing, limit.most);
  }

 private:
  std::vector<ReplicaDesigns>* designs_;
};

struct PackingProblem {
  GroupCounts devices;                  ///< there are
  std::vector<GroupCounts> hosts = {};  ///< and on each host; of few devices not asked
  int most_devices = 0;                 ///< to be used
  int grains = 0;                       ///< of the step
  int grain = 0;                        ///< samples
  int missing = 0;                      ///< samples of the last grain, whichever replica takes it
  int least_replicas = 1;
  int most_replicas = 0;
  /// Devices that are used besides one of each stage, which they share: at least and at most.
  int least_more = 0, most_more = std::numeric_limits<int>::max();
  int single_stages = 0;    ///< of many devices: at least so many replicas are on one
  double limit = kNever;    ///< seconds: packings that take longer are of no use
  double precision = 1e-6;  ///< of the least time in which packings compute all grains
  bool only_least = false;  ///< of many devices the sets that parts are of, once each

  /// Of many devices, no more than `most_replicas` are looked for otherwise.
  bool is_number_given() const { return least_replicas == most_replicas; }
};

/// Sets of devices, by number; in rising order, or host by host.
using Packing = std::vector<size_t>;

struct Packings {
  std::vector<Packing> found;
  /// No packing of these sets computes all grains in less, sums of gradients apart;
  double least_seconds = kNever;
  /// the same of so many replicas from problem.least_replicas on. Of many devices not known.
  std::vector<double> least_of_replicas;
};

/// Whether there are so few devices that packings can be looked at one by one.
bool few_enough_to_enumerate(const GroupCounts& devices);

/// Of few devices, for each number of replicas the sets that compute all grains soonest, to a
/// share of that time, by dynamic programming. Of many one packing of no more replicas or, where it
/// is given, of that number (planner/pipelines/whole_packing.h), one within hosts
/// (planner/pipelines/host_packing.h), and those of one set over all devices, what is left over of
/// which is a replica more or unused.
/// `least_seconds`: no packing is quicker.
Packings best_packings(const PackingProblem& problem, ReplicaSets& sets, double least_seconds);

}  // namespace motley
