#pragma once
// What the search for pipelines chooses from.

#include <vector>

#include "planner/pipelines/pipeline_costs.h"
#include "planner/pipelines/replica_designs.h"
#include "planner/request.h"

namespace motley {

inline constexpr int kMostStages = 8;

/// The sets of at most `most_stages` devices that could be a replica; of very many the smaller
/// ones.
std::vector<GroupCounts> sets_of(const GroupCounts& there, int most_stages);

/// The job's; else one sample, unless that would make very many grains.
int grain_of(const JobSpec& job);

/// Multiples of the grain, 1, 2, 3, 4, 6, 8, 12, …, and the largest of which anything was measured,
/// or of which a step is made.
std::vector<int> micro_batches_of(const PlanRequest& request,
                                  const std::vector<DeviceGroup>& groups, int grain);

}  // namespace motley
