#pragma once
// The best grid (planner/grid/grid_costs.h) for so many devices of each type: over micro-batches,
// numbers of replicas (each with a micro-batch at least), stages, the layers, type and tensor
// degree of each, the order of types, devices left out. Whether replicas of unlike devices are
// quicker is looked at last (planner/grid/mixed_search.h). Shapes are looked at in the order of
// what bounds them, first a fluid of layers over the devices, each by boxes
// (planner/grid/grid_boxes.h), in turns with more and more effort, until none is left that could be
// quicker or the budget, in states and pairs of labels, is spent. Pure and deterministic.

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"
#include "planner/grid/grid_costs.h"

namespace motley {

struct GridRecord {
  double step_seconds = 0;
  double least_seconds = 0;  ///< no plan of the space takes less
  int64_t nodes = 0;
  double alike_seconds = 0;  ///< of the best plan whose replicas are alike; 0: there is none
  bool unlike_too = false;   ///< the space has all plans with unlike replicas
  /// Also of those with unlike replicas.
  bool is_best_of_all() const { return unlike_too && gap() <= 1e-9; }
  double gap() const { return least_seconds > 0 ? step_seconds / least_seconds - 1 : 0; }
};

struct GridResult {
  GridPlan plan;
  GridRecord search;
};

/// `fleet` by type. kNoPlan where no pipeline fits; kUnsupported for more types and degrees than
/// kMostGridResources.
Result<GridResult> search_grid(const GridCosts& costs, const std::vector<GridGroups>& fleet);

/// What was searched, and what its bound is of.
std::string grid_space(const GridCosts& costs, const std::vector<GridGroups>& fleet,
                       const GridRecord& search);

}  // namespace motley
