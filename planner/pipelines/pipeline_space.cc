#include "planner/pipelines/pipeline_space.h"

#include <algorithm>
#include <numeric>

namespace motley {
namespace {

/// Sets of devices that are looked at, of a fleet with more the smaller ones.
constexpr size_t kMostSets = 2000;
/// Of a step, where the job leaves the grain open: a share of a replica is hardly ever finer.
constexpr int kFinestCut = 2048;

/// All sets of at most `most` devices, but the empty one.
void extend_sets(const GroupCounts& there, size_t group, int most, GroupCounts* set,
                 std::vector<GroupCounts>* sets) {
  if (group == there.size()) {
    if (std::accumulate(set->begin(), set->end(), 0) > 0) sets->push_back(*set);
    return;
  }
  for (int count = 0; count <= std::min(there[group], most); ++count) {
    (*set)[group] = count;
    extend_sets(there, group + 1, most - count, set, sets);
    if (sets->size() > kMostSets) break;
  }
  (*set)[group] = 0;
}

}  // namespace

std::vector<GroupCounts> sets_of(const GroupCounts& there, int most_stages) {
  std::vector<GroupCounts> sets;
  for (int most = most_stages; most > 0; --most) {
    sets.clear();
    GroupCounts set(there.size(), 0);
    extend_sets(there, 0, most, &set, &sets);
    if (sets.size() <= kMostSets) break;
  }
  return sets;
}

int grain_of(const JobSpec& job) {
  if (job.train.grain) return *job.train.grain;
  return (job.train.global_batch + kFinestCut - 1) / kFinestCut;
}

std::vector<int> micro_batches_of(const PlanRequest& request,
                                  const std::vector<DeviceGroup>& groups, int grain) {
  if (request.job.train.numerics == Numerics::kExact) return {grain};
  int most = grain;
  for (const DeviceGroup& group : groups)
    for (const LayerCurve& curve : group.profile->curves)
      most = std::max(most, curve.points.back().micro_batch);
  most = std::min(most, (request.job.train.global_batch + grain - 1) / grain * grain);
  std::vector<int> sizes;
  for (int power = grain; power <= most; power *= 2)
    for (const int size : {power, power / grain % 2 == 0 ? power / 2 * 3 : power})
      if (size <= most && size % grain == 0 && (sizes.empty() || size > sizes.back()))
        sizes.push_back(size);
  if (sizes.back() < most) sizes.push_back(most / grain * grain);  // all of a step at once
  return sizes;
}

}  // namespace motley
