#pragma once
// Which grains the planner tries.

#include <vector>

#include "planner/plain/candidates.h"

namespace motley {

/// The job's grain when it gives one; else the divisors of the global batch, as far as some device
/// can hold one grain and the step has at most a few thousand. Rising, never empty.
std::vector<int> candidate_grains(const PlanRequest& request, const Candidates& candidates);

}  // namespace motley
