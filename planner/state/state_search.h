#pragma once
// Plans for which the optimizer's state need not lie with every holder on its device: the search
// for pipelines, whole replicas among them, as if it lay nowhere, and whatever is chosen counted
// with it where place_state() puts it.

#include <optional>
#include <string>
#include <vector>

#include "planner/costs/layer_memory.h"
#include "planner/state/state_placement.h"

namespace motley {

/// What a plan does for want of memory.
struct MemoryWays {
  bool recompute = false;  ///< blocks in their backward pass, as few as fit
  StateWays state = {};

  bool operator==(const MemoryWays&) const = default;
  int count() const { return (recompute ? 1 : 0) + (state.shard ? 1 : 0) + (state.host ? 1 : 0); }
};

/// "blocks computed again, optimizer state sharded".
std::string memory_words(const MemoryWays& ways);

/// Numbers of replicas that may share state; for each it is searched for so many or more, and of up
/// to four devices for each by itself, whatever is asked.
inline const std::vector<int> kSharingReplicas = {2, 3, 4, 8, 16};

/// The quickest found, or what request.below says. kNoPlan where none fits; what the counter fails
/// with.
Result<Plan> search_with(const MemoryWays& ways, const PlanRequest& request,
                         const MemoryCounter& counter,
                         const std::vector<int>& sharing_replicas = kSharingReplicas);

/// No plan of search_with() that is quicker than `step` takes less.
Result<double> prove_with(const MemoryWays& ways, const PlanRequest& request,
                          const MemoryCounter& counter, double step);

/// A plan found with all state on all devices, its state sharded and nothing else changed; nothing
/// where that does not fit, or is neither quicker nor can take less than `below` seconds.
Result<std::optional<Plan>> share_state(const PlanRequest& request, const CountMemory& count,
                                        const Plan& plan, double below);

}  // namespace motley
