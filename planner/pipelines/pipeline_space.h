#pragma once
// What the search for pipelines chooses from.

#include <utility>
#include <vector>

#include "planner/pipelines/pipeline_costs.h"
#include "planner/pipelines/replica_designs.h"
#include "planner/pipelines/replica_packing.h"
#include "planner/request.h"

namespace motley {

/// Searches for a cut, over all sets of few devices.
inline constexpr int kMostCuts = 20'000;
/// Stages placed of one of few sets in a cut, and where not all is looked at.
inline constexpr int64_t kMostNodes = 400'000;
inline constexpr int64_t kFewNodes = 60;
/// Where not all sets are looked at in all ways: designs of other micro-batches that are kept, and
/// of cuts of sets that are used.
inline constexpr double kMuchSlower = 1.05;
inline constexpr int64_t kNodesToImprove = 2000;
inline constexpr int kMostImprovements = 6;
/// Of the least time in which packings compute all grains: exact, and where designs are not,
/// either.
inline constexpr double kExactly = 1e-6;
inline constexpr double kNearly = 1e-4;
/// What a stage needs of what its layers need one by one, where nothing would fit otherwise: their
/// largest buffers do not all live at once.
inline constexpr double kLessThanLayers = 0.95;

/// All sets of at most `most` devices; of more than `most_sets` the smaller ones.
inline constexpr size_t kMostSets = 2000;
std::vector<GroupCounts> sets_of(const GroupCounts& there, int most, size_t most_sets = kMostSets);

/// By what was measured of hosts and of devices on them, by name only where hosts are alike: so
/// that the same is looked at however they are listed and called.
FleetSpec in_order(const PlanRequest& request);

/// The job's; else one sample, unless that would make very many grains.
int grain_of(const JobSpec& job, size_t devices);

/// Multiples of the grain, 1, 2, 3, 4, 6, 8, 12, …, and the largest of which anything was measured,
/// or of which a step is made.
std::vector<int> micro_batches_of(const PlanRequest& request,
                                  const std::vector<DeviceGroup>& groups, int grain);

/// What a job and a fleet leave to choose from. Outlived by the request.
struct PipelineSpace {
  PipelineSpace(const PlanRequest& asked, std::vector<DeviceGroup> devices);

  const PlanRequest& request;
  std::vector<DeviceGroup> groups;
  GroupCounts there;  ///< devices of each group
  bool few;           ///< devices: all packings are looked at
  /// Devices of a replica, and stages, that are looked at: eight, more where the job asks for them,
  /// where so many hold the model hardly, or where that makes few sets.
  int longest;
  std::vector<GroupCounts> hosts;  ///< of many devices the same by host
  int grain;                       ///< samples
  std::vector<int> micro_batches;

  const ParallelSpec& wanted() const { return request.job.parallel; }
  /// Whether no device may have a stage by itself.
  bool all_shared() const { return wanted().tensor.value_or(1) > 1; }
  /// Of a replica; of very many unlike devices fewer than `longest`, as are stages.
  int most_of_a_replica() const { return most_of_a_replica_; }
  /// The same where each of the other replicas that there are to be at least has one.
  int most_beside_others() const { return devices() - (request.least_replicas - 1); }
  /// The same where they need not be as all devices make evenly.
  int most_of_any_replica() const { return most_of_any_replica_; }
  int most_stages() const;
  int most_replicas() const;
  int devices() const;
  int batch() const { return request.job.train.global_batch; }
  int grains() const { return (batch() + grain - 1) / grain; }
  int missing() const { return grains() * grain - batch(); }  ///< samples of the last grain

  /// The sets of at most so many devices that could be a replica, and their parts; of very many the
  /// smaller ones and those that all devices make evenly.
  std::vector<GroupCounts> sets(int most_devices) const;
  PackingProblem packing(int least_replicas, int most_replicas, double precision) const;
  /// Numbers of replicas from which the quickest that fits is looked for by itself: a single one
  /// needs no memory for sums, so that what does not fit with others may fit alone.
  std::vector<std::pair<int, int>> numbers_of_replicas() const;

  /// Whether a set of devices, of which so many cuts are looked at, is designed for any number of
  /// grains.
  bool is_for_all_grains(int cuts) const;
  /// For how many samples a set is designed: any number of grains, or all samples, what would be
  /// its share, and what lies around. `least`: seconds that no plan takes less than.
  std::vector<int> samples_for(const PipelineCosts& costs, const GroupCounts& set, double least,
                               int cuts) const;

  Error none_fits() const;

 private:
  size_t most_sets() const;

  int most_of_a_replica_ = 0, most_of_any_replica_ = 0;
};

}  // namespace motley
