#pragma once
// Plans whose replicas are pipelines: of any devices each, unlike layers a stage, unlike numbers of
// grains. For models that no device holds alone, and for fleets on which cutting is quicker.
//
// Devices that are alike (planner/pipelines/pipeline_costs.h) are counted, not listed. Each set of
// devices that could be a replica has a few designs (planner/pipelines/replica_designs.h), of many
// devices those behind its bound (planner/pipelines/set_times.h). Within a limit on the step each
// set computes a known number of grains; which sets together compute most of them is a knapsack
// over the devices of each group, solved by dynamic programming or, of many devices, in fractions;
// the least limit within which all grains are computed is found by bisection. Whole replicas of one
// device are sets like others. For each number of replicas the best packing becomes a plan, priced
// by predict() with its sums of gradients. That is done again with stages that may hold less and
// less, as that decides the sums, until the bound (planner/pipelines/step_bound.h) says that
// nothing quicker is left or, of few devices, a few times. Where it leaves room replicas that are
// all alike are looked for besides (planner/pipelines/even_replicas.h).

#include "planner/costs/layer_memory.h"
#include "planner/plain/search.h"

namespace motley {

struct FoundPipelines {
  Plan plan;
  /// Of the quickest plan of a device a stage, where stages of `plan` are shared; else 0.
  int replicas_of_single = 0;
  /// Others that take hardly longer, whose ranks hold less or whose replicas are alike, of no more
  /// than 64 devices: refined they may be quicker.
  std::vector<Plan> near = {};
};

/// The quickest found, or what request.below says. kNoPlan where none fits; what the counter fails
/// with.
Result<FoundPipelines> find_pipelines(const PlanRequest& request, const MemoryCounter& counter);
Result<Plan> search_pipelines(const PlanRequest& request, const MemoryCounter& counter);
/// The same where blocks may be computed again in their backward pass, of each stage as few as fit:
/// by the sum of what layers need, then as counted (planner/pipelines/recompute_less.h). Proves
/// little by itself.
Result<Plan> search_recomputing(const PlanRequest& request, const MemoryCounter& counter);

/// Of plans quicker than `step` none that search_pipelines() could find takes less; with kBlock
/// none of search_recomputing() whose ranks need no less than kLessThanLayers of the sum.
Result<double> prove_pipelines(const PlanRequest& request, const MemoryCounter& counter,
                               Recompute recompute, double step);

struct LeastSeconds {
  double computing = 0;  ///< of a step, whatever is exchanged
  double step = 0;       ///< by what hosts have to exchange, whoever owns the state
};

/// No plan takes less, however it is cut, were memory free; 0 where too little was measured to
/// tell. kInvalidSpec where the profile lacks a device.
Result<LeastSeconds> least_seconds_of_pipelines(const PlanRequest& request);

/// Seconds of devices times their prices by the hour: no plan's step costs less, were memory and
/// sums free, as each layer and each update costs what it does on the device where that is least; 0
/// where too little was measured to tell. What is pinned may be otherwise.
Result<double> least_cost_of_pipelines(const PlanRequest& request);

}  // namespace motley
