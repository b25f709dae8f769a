#pragma once
// Where the optimizer's state of a plan lies whose cut, grains and micro-batches are settled: with
// every holder on its device, with one owner of each slice, in host memory.

#include <string>
#include <vector>

#include "core/plan.h"
#include "core/result.h"
#include "planner/plain/search.h"
#include "planner/request.h"

namespace motley {

/// What a plan may do besides keeping all state on the devices of all its holders.
struct StateWays {
  bool shard = false;  ///< always, where true
  bool host = false;   ///< for devices with memory of their own, as few as needed

  bool operator==(const StateWays&) const = default;
};

/// "optimizer state sharded and in host memory"; empty for neither.
std::string state_words(const StateWays& ways);

struct PlacedState {
  Plan plan;  ///< not predicted anew
  std::vector<RankMemory> counted;
  bool fits = false;  ///< devices and, as far as that is known, hosts
};

/// The quickest that fits: owners by owner_deal.h as far as memory allows, counted. Where none was
/// found to fit, even owners.
Result<PlacedState> place_state(const PlanRequest& request, const CountMemory& count,
                                const Plan& plan, const StateWays& ways);

/// The same as a plan: predicted with what was counted, named anew.
Result<Plan> plan_of(const PlanRequest& request, PlacedState placed);

/// Seconds that updating sharded state takes at least, whoever of these devices has how much.
double least_update_seconds(const std::vector<const DeviceProfile*>& devices);

}  // namespace motley
