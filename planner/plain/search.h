#pragma once
// From measured profiles to a plan: who computes how many grains at which micro-batch, who is left
// out. Pure and deterministic: same request, same bytes. No clock, no file, no thread.
//
// The space of the first form is data parallelism: each used device is one replica. Searched are
// the grain (the job's, or any divisor of the global batch), the devices used, their grains, the
// micro-batch of each, and, where the last grain of a step is short, who takes it. Minimised is
//
//   step = max(compute + update) + reduction(number of ranks, hosts)     over the used devices
//
// or, where sums between hosts go on beside computing, max(when each has computed and summed)
// (planner/costs/sums_beside.h).

#include <functional>
#include <string>
#include <vector>

#include "core/plan.h"
#include "core/result.h"
#include "planner/request.h"

namespace motley {

/// A form of search: the real one and the exhaustive one of small cases stand behind the same
/// signature. kNoPlan names the device that comes nearest and what it lacks; kInvalidSpec when
/// exact's demands are not met or the profile lacks a device; kNoDevice when job.devices admits too
/// few. Among equal steps the fewest devices win, then the largest grain; equal devices take the
/// bigger shares in fleet order.
Result<Plan> plan_search(const PlanRequest& request);

/// Every division of grains, micro-batch, grain and subset of devices: an oracle for small cases
/// (kUnsupported above ~1e8).
Result<Plan> plan_exhaustive(const PlanRequest& request);

/// Bytes that each rank of a plan would need, in the order of ranks.
using CountMemory = std::function<Result<std::vector<RankMemory>>(const Plan& plan)>;

/// Forms of the equal split, as search.space ("equal split: " before it) and reports name them.
inline constexpr const char* kEqualReplicas =
    "plain data parallel, synchronous reduction at the end";
inline constexpr const char* kEqualPipelines = "pipeline of equal stages";

/// What people would do without us, the baseline: the same number of samples on every device that
/// holds the model, each with its best micro-batch, gradients reduced at the step's end. Where none
/// holds it and memory can be counted, equal pipelines of equal stages
/// (planner/questions/equal_pipelines.h). kNoPlan where neither is possible.
Result<Plan> plan_equal_split(const PlanRequest& request, const CountMemory& count = nullptr);
/// Its first form where memory tables are taken for all that a rank needs, not its engine alone.
Result<Plan> equal_split_within_tables(const PlanRequest& request);

/// Which of the two forms an equal split has.
std::string equal_split_form(const Plan& plan);

}  // namespace motley
