#pragma once
// The best grid (planner/grid_costs.h) for so many devices of each type: over micro-batches,
// numbers of replicas (for each number of passes the fewest), stages, the layers, type and tensor
// degree of each, the order of types, devices left out. Shapes are looked at in the order of a
// bound (a fluid of layers over the devices), each first with few labels, then with all that its
// bounds leave (planner/grid_labels.h). Pure and deterministic; the budget is in labels.

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"
#include "planner/grid_costs.h"

namespace motley {

struct GridRecord {
  double step_seconds = 0;
  double least_seconds = 0;  ///< no plan of the space takes less
  int64_t labels = 0;
  int64_t shapes = 0;  ///< that no bound ruled out
  double gap() const { return step_seconds / least_seconds - 1; }
};

struct GridResult {
  GridPlan plan;
  GridRecord search;
};

/// `devices` there are of each type. kNoPlan where no pipeline fits; kUnsupported for more types
/// than kMostGridTypes.
Result<GridResult> search_grid(const GridCosts& costs, const std::vector<int>& devices);

/// What is searched.
std::string grid_space(const GridCosts& costs, const std::vector<int>& devices);

}  // namespace motley
