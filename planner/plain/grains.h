#pragma once
// Which grains the planner tries.

#include <vector>

#include "planner/plain/candidates.h"

namespace motley {

/// The job's grain when it gives one; else the divisors of the global batch of which some device
/// can hold one grain and the step has at most a few thousand, and one that lets each device choose
/// among several micro-batches. Rising, never empty.
std::vector<int> candidate_grains(const PlanRequest& request, const Candidates& candidates);

}  // namespace motley
