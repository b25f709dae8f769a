#include "planner/grid_plan_json.h"

#include <nlohmann/json.hpp>

namespace motley {

using nlohmann::json;

json to_json(const GridPlan& plan, const std::vector<std::string>& types,
             const std::vector<int>& devices) {
  std::vector<int> left = devices;
  json stages = json::array();
  for (const GridStage& stage : plan.stages) {
    const auto type = static_cast<size_t>(stage.config.type);
    left[type] -= stage.config.degree * plan.replicas;
    stages.push_back({{"first_layer", stage.first},
                      {"last_layer", stage.end - 1},
                      {"type", types[type]},
                      {"tensor", stage.config.degree}});
  }
  json left_out = json::object();
  for (size_t type = 0; type < types.size(); ++type)
    if (left[type] > 0) left_out[types[type]] = left[type];
  return {{"version", 1},
          {"micro_batch", plan.micro_batch},
          {"replicas", plan.replicas},
          {"stages", std::move(stages)},
          {"left_out", std::move(left_out)}};
}

json to_json(const GridRecord& search, const std::string& space) {
  return {{"space", space},
          {"step_seconds", search.step_seconds},
          {"lower_bound_step_seconds", search.least_seconds},
          {"gap", search.gap()},
          {"labels", search.labels}};
}

}  // namespace motley
