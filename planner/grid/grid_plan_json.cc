#include "planner/grid/grid_plan_json.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "core/json_fields.h"
#include "core/json_place.h"
#include "core/units.h"
#include "planner/grid/grid_reasons.h"

namespace motley {

using nlohmann::json;

namespace {

/// What documents of ours say of a plan besides: it is found anew.
constexpr const char* kTold[] = {"kind",         "model",      "global_batch",
                                 "left_out",     "prediction", "bill",
                                 "left_out_why", "search",     "iterations_per_second"};

/// Its number: of types of one name the one that has most memory, unless the document says.
int type_of(const std::vector<GridType>& types, const std::string& name, Bytes memory) {
  int found = -1;
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i].name != name || (memory > Bytes(0) && types[i].memory != memory)) continue;
    if (found < 0 || types[i].memory > types[static_cast<size_t>(found)].memory)
      found = static_cast<int>(i);
  }
  return found;
}

std::string no_type_fault(const std::vector<GridType>& types, const std::string& name) {
  std::vector<std::string_view> known;
  for (const GridType& type : types) {
    if (type.name == name) return "the fleet has none of this memory";
    known.emplace_back(type.name);
  }
  const std::string near = did_you_mean(name, known.data(), known.size());
  return "the fleet has no device of it" + (near.empty() ? "" : " (did you mean '" + near + "'?)");
}

/// `degrees`: those at which it can compute such micro-batches.
std::string no_degree_fault(const std::string& type, int degree, int micro_batch,
                            const std::vector<int>& degrees) {
  const std::string size = "micro-batch " + std::to_string(micro_batch);
  if (degrees.empty()) return type + " was not measured at " + size;
  std::string known;
  for (const int one : degrees) known += (known.empty() ? "" : ", ") + std::to_string(one);
  return type + " cannot be at tensor " + std::to_string(degree) + ": at " + size +
         " it can be at " + known + " (measured, each a part of the next)";
}

GridConfig read_config(JsonFields& fields, const ForeignCosts& costs, int micro_batch) {
  GridConfig config;
  Bytes memory{0};
  std::string type;
  fields.read("type", type).leave_notes();
  if (fields.has("tensor")) fields.read_between("tensor", config.degree, 1, 1 << 20);
  if (fields.has("memory")) fields.read_between("memory", memory, 1, INT64_MAX / 4);
  config.type = type_of(costs.grid_types(), type, memory);
  if (config.type < 0) {
    fields.fault("type", no_type_fault(costs.grid_types(), type));
    return {};
  }
  const std::vector<int> degrees = costs.degrees(config.type, micro_batch);
  if (std::find(degrees.begin(), degrees.end(), config.degree) == degrees.end())
    fields.fault(nullptr, no_degree_fault(type, config.degree, micro_batch, degrees));
  return config;
}

void read_stage(JsonFields& fields, const ForeignCosts& costs, GridPlan* plan) {
  GridStage stage;
  int last = 0;
  const int expected = plan->stages.empty() ? 0 : plan->stages.back().end;
  fields.read_between("first_layer", stage.first, expected, expected)
      .read_between("last_layer", last, expected, costs.layers() - 1);
  stage.end = last + 1;
  stage.config = read_config(fields, costs, plan->micro_batch);
  plan->stages.push_back(stage);
}

void read_unlike(JsonFields& fields, const ForeignCosts& costs, GridPlan* plan) {
  GridReplicas& unlike = plan->unlike.emplace_back();
  fields.read_between("replicas", unlike.count, 1, plan->replicas).leave_notes();
  fields.each("stages", [&](JsonFields& each) {
    unlike.configs.push_back(read_config(each, costs, plan->micro_batch));
  });
  if (unlike.configs.size() != plan->stages.size())
    fields.fault("stages", "must be as many as the plan's " + std::to_string(plan->stages.size()));
}

/// Of which one at least is like the plan's stages.
void check_unlike(JsonFields& fields, const GridPlan& plan) {
  int64_t count = 0;
  for (const GridReplicas& unlike : plan.unlike) count += unlike.count;
  if (count >= plan.replicas)
    fields.fault("unlike", "must leave some of the " + std::to_string(plan.replicas) + " replicas");
}

/// Groups that stages take, or larger ones that hold them.
Result<Unit> check_devices(const GridPlan& plan, const ForeignCosts& costs) {
  const std::vector<GridGroups> fleet = costs.groups();
  const std::vector<GridReplicas> replicas = replicas_of(plan);
  for (size_t type = 0; type < fleet.size(); ++type)
    for (const auto& [size, there] : fleet[type]) {
      int64_t taken = 0;
      for (size_t s = 0; s < plan.stages.size(); ++s) {
        for (const GridReplicas& own : replicas) {
          const GridConfig config = own.configs[s];
          if (config.type != static_cast<int>(type) || config.degree % size != 0) continue;
          taken += int64_t{config.degree / size} * own.count;
        }
        if (taken > there)
          return invalid_at(
              "/stages/" + std::to_string(s),
              "needs more " + costs.grid_types()[type].name + " than the " + std::to_string(there) +
                  (size == 1 ? " there are" : " groups of " + std::to_string(size) + " on hosts"));
      }
    }
  return Unit{};
}

Result<Unit> check_memory(const GridPlan& plan, const ForeignCosts& costs) {
  for (size_t s = 0; s < plan.stages.size(); ++s)
    if (const std::string lack = lacking_memory(plan, s, costs); !lack.empty())
      return invalid_at("/stages/" + std::to_string(s), lack);
  return Unit{};
}

json to_json(GridConfig config, const std::vector<GridType>& types) {
  const GridType& type = types[static_cast<size_t>(config.type)];
  return {{"type", type.name}, {"memory", type.memory.value()}, {"tensor", config.degree}};
}

}  // namespace

json to_json(const GridPlan& plan, const std::vector<GridType>& types) {
  std::map<std::string, int> left;
  for (size_t type = 0; type < types.size(); ++type)
    left[types[type].name] += types[type].devices() - devices_of(plan, static_cast<int>(type));
  std::erase_if(left, [](const auto& one) { return one.second == 0; });
  json stages = json::array(), unlike = json::array();
  for (const GridStage& stage : plan.stages) {
    json& own = stages.emplace_back(to_json(stage.config, types));
    own["first_layer"] = stage.first;
    own["last_layer"] = stage.end - 1;
  }
  for (const GridReplicas& replicas : plan.unlike) {
    json configs = json::array();
    for (const GridConfig config : replicas.configs) configs.push_back(to_json(config, types));
    unlike.push_back({{"replicas", replicas.count}, {"stages", std::move(configs)}});
  }
  json document = {{"version", 1},
                   {"micro_batch", plan.micro_batch},
                   {"replicas", plan.replicas},
                   {"stages", std::move(stages)},
                   {"left_out", left}};
  if (!plan.unlike.empty()) document["unlike"] = std::move(unlike);
  return document;
}

json to_json(const GridRecord& search, const std::string& space) {
  json document = {{"space", space},
                   {"step_seconds", search.step_seconds},
                   {"lower_bound_step_seconds", search.least_seconds},
                   {"gap", search.gap()},
                   {"nodes", search.nodes}};
  if (search.alike_seconds > 0) document["alike_step_seconds"] = search.alike_seconds;
  return document;
}

Result<GridPlan> read_grid_plan(const json& document, const ForeignCosts& costs) {
  GridPlan plan;
  JsonFields fields(document);
  fields.read_version(1)
      .read_between("micro_batch", plan.micro_batch, 1, 1 << 30)
      .read_between("replicas", plan.replicas, 1, 1 << 30)
      .leave_notes();
  for (const char* key : kTold) fields.has(key);
  fields.each("stages", [&](JsonFields& each) { read_stage(each, costs, &plan); });
  if (fields.has("unlike")) {
    fields.each("unlike", [&](JsonFields& each) { read_unlike(each, costs, &plan); });
    check_unlike(fields, plan);
  }
  if (plan.stages.empty() || plan.stages.back().end != costs.layers())
    fields.fault("stages", "must hold all " + std::to_string(costs.layers()) + " layers");
  MOTLEY_TRY_VOID(fields.done());
  MOTLEY_TRY_VOID(check_devices(plan, costs));
  MOTLEY_TRY_VOID(check_memory(plan, costs));
  if (const std::string link = lacking_link(plan, costs); !link.empty())
    return invalid_at("/stages", "the profile lacks a link that they need: " + link);
  return plan;
}

}  // namespace motley
