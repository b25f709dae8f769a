#pragma once
// What plain data parallelism needs besides the engines that profiles know: core/rank_memory.h for
// ranks that hold all of the model each, with even owners. It depends on how many ranks there are,
// which a search has still to find.

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "core/device_islands.h"
#include "core/plan.h"
#include "core/reduction.h"
#include "core/result.h"
#include "planner/plain/device_index.h"
#include "planner/request.h"

namespace motley {

/// Of the ranks of a valid plain plan. What all of them share is found once.
class PlainMemory {
 public:
  /// All outlive it; `gpus` are the plan's islands.
  PlainMemory(const PlanRequest& request, const Plan& plan, const DeviceIslands& gpus,
              const DeviceIndex& index);

  /// `engine`: what the memory table of its device says.
  RankMemory of(Rank rank, Bytes engine);

 private:
  /// What ranks exchange, of gradients of one width.
  struct Sums {
    std::vector<ReductionPlan> plans;
    Bytes more{0};  ///< on each speaker besides
    bool compresses = false;
  };
  struct Needs {
    Bytes bytes{0};
    bool compresses = false;
  };
  const Sums& sums_of(int gradient_bytes);
  Needs exchange_needs(int gradient_bytes, Rank rank);
  Needs needs_apart(int gradient_bytes, int weight_bytes, Rank rank, bool in_host) const;

  const PlanRequest& request_;
  const Plan& plan_;
  const DeviceIndex& index_;
  int64_t elements_ = 0;  ///< of the model
  Islands islands_;
  std::vector<int> speakers_;
  std::map<Rank, int64_t> owned_;  ///< elements
  bool apart_ = false;
  std::map<int, Sums> sums_;  ///< by bytes of a gradient's element
};

/// The quickest plan of what `search` finds where memory tables mean all that a rank needs: it is
/// asked for at least 1, 2, 3, 4, 6, 8, 12, … ranks, with tables of what these need (more ranks
/// need less each), as often as more fits then. Of several errors the first.
Result<Plan> best_over_ranks(const PlanRequest& request,
                             const std::function<Result<Plan>(const PlanRequest&)>& search);

}  // namespace motley
