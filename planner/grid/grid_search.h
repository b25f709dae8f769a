#pragma once
// The best grid (planner/grid/grid_costs.h) for so many devices of each type: over micro-batches,
// numbers of replicas (each with a micro-batch at least), stages, the layers, type and tensor
// degree of each, the order of types, devices left out. Shapes are looked at in the order of what
// bounds them, first a fluid of layers over the devices, each by boxes (planner/grid/grid_boxes.h),
// in turns with more and more effort, until none is left that could be quicker or the budget, in
// states and pairs of labels, is spent. Pure and deterministic.

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
  double gap() const { return least_seconds > 0 ? step_seconds / least_seconds - 1 : 0; }
};

struct GridResult {
  GridPlan plan;
  GridRecord search;
};

/// `fleet` by type. kNoPlan where no pipeline fits; kUnsupported for more types and degrees than
/// kMostGridResources.
Result<GridResult> search_grid(const GridCosts& costs, const std::vector<GridGroups>& fleet);

/// What is searched.
std::string grid_space(const GridCosts& costs, const std::vector<GridGroups>& fleet);

}  // namespace motley
