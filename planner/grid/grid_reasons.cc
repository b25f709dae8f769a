#include "planner/grid/grid_reasons.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "planner/grid/grid_search.h"

namespace motley {
namespace {

std::string bytes_text(double bytes) {
  return format_bytes(Bytes(static_cast<int64_t>(std::min(bytes, 9e18))));
}

const std::string& type_name(const ForeignCosts& costs, int type) {
  return costs.grid_types()[static_cast<size_t>(type)].name;
}

std::string types_text(const ForeignCosts& costs) {
  std::vector<std::string> names;
  for (const GridType& type : costs.grid_types())
    if (std::find(names.begin(), names.end(), type.name) == names.end()) names.push_back(type.name);
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  return list;
}

/// Those measured for which a host has enough devices.
std::vector<GridConfig> placeable(const ForeignCosts& costs, int type, int micro_batch) {
  const GridGroups groups = costs.groups_of(type);
  std::vector<GridConfig> configs;
  for (const int degree : costs.degrees(type, micro_batch))
    if (groups.at(degree) > 0) configs.push_back({type, degree});
  return configs;
}

/// Bytes that layers need of what there is for them.
struct Need {
  int micro_batch = 0;
  double bytes = 0, usable = 0;
  int layer = 0;           ///< of one alone
  GridConfig config = {};  ///< on which it needs the least of what there is

  double share() const { return bytes / usable; }
};

/// With one micro-batch in flight.
Need need_of(const ForeignCosts& costs, int layer, GridConfig config, int micro_batch) {
  const GridStage alone{layer, layer + 1, config};
  return {micro_batch, costs.fixed_bytes(alone) + costs.bytes_in_flight(alone, micro_batch),
          costs.usable_bytes(config.type), layer, config};
}

/// What bounds any cut from below at one micro-batch.
struct LeastNeeds {
  Need hardest_layer;  ///< on the config that suits it best
  Need all;            ///< of all devices together
};

LeastNeeds least_needs(const ForeignCosts& costs, int micro_batch) {
  LeastNeeds least{{.micro_batch = micro_batch, .usable = 1}, {.micro_batch = micro_batch}};
  std::vector<GridConfig> configs;
  for (int type = 0; type < costs.types(); ++type) {
    const std::vector<GridConfig> its = placeable(costs, type, micro_batch);
    configs.insert(configs.end(), its.begin(), its.end());
    if (!its.empty())
      least.all.usable +=
          costs.usable_bytes(type) * costs.grid_types()[static_cast<size_t>(type)].devices();
  }
  for (int layer = 0; layer < costs.layers() && !configs.empty(); ++layer) {
    Need best = need_of(costs, layer, configs.front(), micro_batch);
    double of_all = std::numeric_limits<double>::infinity();
    for (const GridConfig config : configs) {
      const Need need = need_of(costs, layer, config, micro_batch);
      if (need.share() < best.share()) best = need;
      of_all = std::min(of_all, need.bytes * config.degree);
    }
    least.all.bytes += of_all;
    if (best.share() > least.hardest_layer.share()) least.hardest_layer = best;
  }
  return least;
}

/// At the micro-batch that lacks the least; empty where memory does not rule out every one.
std::string memory_of_any_cut(const ForeignCosts& costs) {
  std::optional<LeastNeeds> least;
  const auto shortfall = [](const LeastNeeds& needs) {
    return std::max(needs.hardest_layer.share(), needs.all.share());
  };
  for (const int micro_batch : costs.micro_batches()) {
    const LeastNeeds needs = least_needs(costs, micro_batch);
    if (needs.all.usable > 0 && (!least || shortfall(needs) < shortfall(*least))) least = needs;
  }
  if (!least) return "no host has as many devices as the least tensor degree that was measured";
  const Need& layer = least->hardest_layer;
  const std::string at = ", at micro-batch " + std::to_string(layer.micro_batch);
  if (layer.share() > 1)
    return "no device holds layer " + std::to_string(layer.layer) + ": it needs at least " +
           bytes_text(layer.bytes) + at + " and tensor degree " +
           std::to_string(layer.config.degree) + ", and of " + type_name(costs, layer.config.type) +
           " " + bytes_text(layer.usable) + " may be used";
  if (least->all.share() > 1)
    return "the devices do not hold the model: however it is cut it needs at least " +
           bytes_text(least->all.bytes) + at + ", and of all devices together " +
           bytes_text(least->all.usable) + " may be used";
  return "";
}

/// As if what was not measured took no time.
class WithEveryLink final : public ForeignCosts {
 public:
  explicit WithEveryLink(const ForeignCosts& costs) : ForeignCosts(costs) {}

  double send(int layer, int micro_batch, GridConfig from, GridConfig to) const override {
    return link(from, to) ? ForeignCosts::send(layer, micro_batch, from, to) : 0;
  }
  double reduction(const GridStage& stage, GridConfig next, int replicas) const override {
    return ring(stage.config.type, next.type) ? ForeignCosts::reduction(stage, next, replicas) : 0;
  }
};

bool share_a_micro_batch(const ForeignCosts& costs) {
  const std::vector<int> sizes = costs.micro_batches();
  return std::any_of(sizes.begin(), sizes.end(), [&](int size) {
    for (int type = 0; type < costs.types(); ++type)
      if (placeable(costs, type, size).empty()) return false;
    return true;
  });
}

std::string devices_text(const ForeignCosts& costs, GridConfig config) {
  return std::to_string(config.degree) + " of " + type_name(costs, config.type);
}

bool holds_a_layer(const ForeignCosts& costs, const std::vector<GridConfig>& configs,
                   int micro_batch) {
  for (const GridConfig config : configs)
    for (int layer = 0; layer < costs.layers(); ++layer)
      if (costs.farthest_from_end({layer, layer + 1, config}, micro_batch, 1) > 0) return true;
  return false;
}

bool is_linked(const ForeignCosts& costs, const std::vector<GridConfig>& configs,
               const GridPlan& plan) {
  for (const GridConfig config : configs)
    for (const GridReplicas& replicas : replicas_of(plan))
      for (const GridConfig other : replicas.configs)
        if (costs.link(config, other)) return true;
  return false;
}

std::string why_left_out(const GridPlan& plan, const ForeignCosts& costs, int type,
                         GridOrigin origin) {
  const std::string size = "micro-batch " + std::to_string(plan.micro_batch);
  if (!costs.is_measured(type)) return "the profile has no times of it";
  if (origin == GridOrigin::kGiven) return "not in the plan that was given";
  if (costs.degrees(type, plan.micro_batch).empty()) return "not measured at " + size;
  const std::vector<GridConfig> configs = placeable(costs, type, plan.micro_batch);
  if (configs.empty()) return "its hosts have too few for the tensor degrees measured at " + size;
  if (!holds_a_layer(costs, configs, plan.micro_batch)) return "does not hold a layer at " + size;
  if (!is_linked(costs, configs, plan)) return "the profile has no link to it";
  return origin == GridOrigin::kProvedBest ? "no plan with more of them is quicker"
                                           : "no quicker plan with more of them was found";
}

/// For sums between neighbours of a stage.
std::string lacking_ring(const GridPlan& plan, size_t stage, GridConfig config, GridConfig next,
                         const ForeignCosts& costs) {
  const ForeignLink* around = costs.ring(config.type, next.type);
  const double bytes = costs.gradient_bytes(plan.stages[stage], config.degree) / plan.replicas;
  const std::string between =
      "the one between " + devices_text(costs, {config.type, 1}) + " and " +
      (config.type == next.type ? "another" : devices_text(costs, {next.type, 1}));
  if (!around) return between + ", which sums gradients";
  if (around->carries(bytes)) return "";
  return between + " for sums of gradients in messages of " + bytes_text(bytes) +
         ", at which its bandwidth is not above 0";
}

}  // namespace

std::string why_no_grid(const ForeignCosts& costs) {
  if (costs.micro_batches().empty())
    return "the profile has no times of any type in the fleet (" + types_text(costs) + ")";
  if (std::string memory = memory_of_any_cut(costs); !memory.empty()) return memory;
  const WithEveryLink linked(costs);
  if (const Result<GridResult> found = search_grid(linked, linked.groups()))
    if (const std::string link = lacking_link(found->plan, costs); !link.empty())
      return "no pipeline of these devices can do without links that the profile lacks, such as " +
             link;
  return "no cut into stages fits the memory of these devices with the micro-batches that are in "
         "flight at once" +
         std::string(share_a_micro_batch(costs)
                         ? ""
                         : ", and no micro-batch was measured of all of " + types_text(costs) +
                               ", which a pipeline of them would need");
}

std::string lacking_link(const GridPlan& plan, const ForeignCosts& costs) {
  const std::vector<GridReplicas> replicas = replicas_of(plan);
  for (const GridReplicas& own : replicas)
    for (size_t s = 0; s + 1 < own.configs.size(); ++s)
      if (!costs.link(own.configs[s], own.configs[s + 1]))
        return "the one between a stage on " + devices_text(costs, own.configs[s]) +
               " and one on " + devices_text(costs, own.configs[s + 1]);
  for (size_t s = 0; s < plan.stages.size() && plan.replicas > 1; ++s)
    for (const auto& [from, to] : neighbours(replicas, s))
      if (std::string link = lacking_ring(plan, s, from, to, costs); !link.empty()) return link;
  return "";
}

std::string lacking_memory(const GridPlan& plan, size_t stage, const ForeignCosts& costs) {
  const int passes = costs.passes(plan.micro_batch, plan.replicas);
  for (const GridReplicas& own : replicas_of(plan)) {
    GridStage its = plan.stages[stage];
    its.config = own.configs[stage];
    if (costs.farthest_from_end(its, plan.micro_batch, passes) >=
        static_cast<int>(plan.stages.size() - stage))
      continue;
    return "does not fit the memory of its devices: it needs " +
           bytes_text(bytes_of_stage(plan, stage, its.config, costs)) + " of each, and " +
           bytes_text(costs.usable_bytes(its.config.type)) + " may be used";
  }
  return "";
}

double bytes_of_stage(const GridPlan& plan, size_t stage, GridConfig config,
                      const ForeignCosts& costs) {
  const int in_flight = std::min(static_cast<int>(plan.stages.size() - stage),
                                 costs.passes(plan.micro_batch, plan.replicas));
  GridStage its = plan.stages[stage];
  its.config = config;
  return costs.fixed_bytes(its) + in_flight * costs.bytes_in_flight(its, plan.micro_batch);
}

std::vector<GridLeftOut> left_out_of(const GridPlan& plan, const ForeignCosts& costs,
                                     GridOrigin origin) {
  std::vector<GridLeftOut> list;
  for (int type = 0; type < costs.types(); ++type) {
    const int left =
        costs.grid_types()[static_cast<size_t>(type)].devices() - devices_of(plan, type);
    if (left > 0)
      list.push_back({type_name(costs, type), left, why_left_out(plan, costs, type, origin)});
  }
  return list;
}

}  // namespace motley
