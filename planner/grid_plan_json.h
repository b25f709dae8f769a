#pragma once
// The document of a grid: core/FORMATS.md, "grid plan".

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "planner/grid_search.h"

namespace motley {

/// `types` by number; `devices` there are of each.
nlohmann::json to_json(const GridPlan& plan, const std::vector<std::string>& types,
                       const std::vector<int>& devices);
nlohmann::json to_json(const GridRecord& search, const std::string& space);

}  // namespace motley
