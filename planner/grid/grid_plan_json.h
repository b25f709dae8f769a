#pragma once
// The document of a grid: core/FORMATS.md, "grid plan".

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/result.h"
#include "planner/grid/foreign_costs.h"
#include "planner/grid/grid_search.h"

namespace motley {

nlohmann::json to_json(const GridPlan& plan, const std::vector<GridType>& types);
nlohmann::json to_json(const GridRecord& search, const std::string& space);

/// Micro-batch, replicas and stages of such a document; what else it may have is left aside.
/// Checked to be whole, to be priced by these costs and to fit their devices and memory:
/// kInvalidSpec, its message beginning with a JSON pointer.
Result<GridPlan> read_grid_plan(const nlohmann::json& document, const ForeignCosts& costs);

}  // namespace motley
