#include "planner/grid_plan_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/json_fields.h"
#include "core/json_place.h"

namespace motley {

using nlohmann::json;

namespace {

/// Its number; of types of one name the one that has most devices on a host, unless the document
/// says which.
int type_of(const std::vector<GridType>& types, const std::string& name, int on_host) {
  int found = -1;
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i].name != name || (on_host > 0 && types[i].on_host != on_host)) continue;
    if (found < 0 || types[i].on_host > types[static_cast<size_t>(found)].on_host)
      found = static_cast<int>(i);
  }
  return found;
}

void read_stage(JsonFields& fields, const ForeignCosts& costs, GridPlan* plan) {
  GridStage stage;
  int last = 0, on_host = 0;
  std::string type;
  const int expected = plan->stages.empty() ? 0 : plan->stages.back().end;
  fields.read_between("first_layer", stage.first, expected, expected)
      .read_between("last_layer", last, expected, costs.layers() - 1)
      .read("type", type)
      .leave_others();
  if (fields.has("tensor")) fields.read_between("tensor", stage.config.degree, 1, 1 << 20);
  if (fields.has("on_host")) fields.read_between("on_host", on_host, 1, 1 << 30);
  stage.end = last + 1;
  stage.config.type = type_of(costs.grid_types(), type, on_host);
  if (stage.config.type < 0) return fields.fault("type", "the fleet has no device of it");
  const std::vector<int> degrees = costs.degrees(stage.config.type, plan->micro_batch);
  if (std::find(degrees.begin(), degrees.end(), stage.config.degree) == degrees.end())
    fields.fault(nullptr, type + " was not measured, or cannot be placed on its hosts, at tensor " +
                              std::to_string(stage.config.degree) + " and micro-batch " +
                              std::to_string(plan->micro_batch));
  plan->stages.push_back(stage);
}

Result<Unit> check_fit(const GridPlan& plan, const ForeignCosts& costs) {
  std::vector<int64_t> used(costs.grid_types().size(), 0);
  const auto count = static_cast<int>(plan.stages.size());
  const int passes = costs.passes(plan.micro_batch, plan.replicas);
  for (int s = 0; s < count; ++s) {
    const GridStage& stage = plan.stages[static_cast<size_t>(s)];
    const std::string place = "/stages/" + std::to_string(s);
    if (costs.farthest_from_end(stage, plan.micro_batch, passes) < count - s)
      return invalid_at(place, "does not fit the memory of its devices");
    const auto type = static_cast<size_t>(stage.config.type);
    used[type] += int64_t{stage.config.degree} * plan.replicas;
    if (used[type] > costs.grid_types()[type].devices)
      return invalid_at(place, "needs more " + costs.grid_types()[type].name + " than the " +
                                   std::to_string(costs.grid_types()[type].devices) +
                                   " there are, " +
                                   std::to_string(costs.grid_types()[type].on_host) + " to a host");
  }
  return Unit{};
}

}  // namespace

json to_json(const GridPlan& plan, const std::vector<GridType>& types) {
  std::map<std::string, int> left;
  for (const GridType& type : types) left[type.name] += type.devices;
  json stages = json::array();
  for (const GridStage& stage : plan.stages) {
    const GridType& type = types[static_cast<size_t>(stage.config.type)];
    left[type.name] -= stage.config.degree * plan.replicas;
    stages.push_back({{"first_layer", stage.first},
                      {"last_layer", stage.end - 1},
                      {"type", type.name},
                      {"on_host", type.on_host},
                      {"tensor", stage.config.degree}});
  }
  std::erase_if(left, [](const auto& one) { return one.second == 0; });
  return {{"version", 1},
          {"micro_batch", plan.micro_batch},
          {"replicas", plan.replicas},
          {"stages", std::move(stages)},
          {"left_out", left}};
}

json to_json(const GridRecord& search, const std::string& space) {
  return {{"space", space},
          {"step_seconds", search.step_seconds},
          {"lower_bound_step_seconds", search.least_seconds},
          {"gap", search.gap()},
          {"nodes", search.labels}};
}

Result<GridPlan> read_grid_plan(const json& document, const ForeignCosts& costs) {
  GridPlan plan;
  JsonFields fields(document);
  fields.read_version(1)
      .read_between("micro_batch", plan.micro_batch, 1, 1 << 30)
      .read_between("replicas", plan.replicas, 1, 1 << 30)
      .leave_others();
  fields.each("stages", [&](JsonFields& each) { read_stage(each, costs, &plan); });
  if (plan.stages.empty() || plan.stages.back().end != costs.layers())
    fields.fault("stages", "must hold all " + std::to_string(costs.layers()) + " layers");
  MOTLEY_TRY_VOID(fields.done());
  MOTLEY_TRY_VOID(check_fit(plan, costs));
  return plan;
}

}  // namespace motley
