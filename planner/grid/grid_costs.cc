#include "planner/grid/grid_costs.h"

#include <algorithm>

namespace motley {

int GridCosts::passes(int micro_batch, int replicas) const {
  const int64_t samples = int64_t{micro_batch} * replicas;
  return static_cast<int>((global_batch() + samples - 1) / samples);
}

double GridCosts::reduction_of(const GridStage& stage, size_t number,
                               const std::vector<GridReplicas>& replicas) const {
  int all = 0;
  for (const GridReplicas& own : replicas) all += own.count;
  double seconds = 0;
  for (const auto& [from, to] : neighbours(replicas, number))
    seconds = std::max(seconds, reduction({stage.first, stage.end, from}, to, all));
  return seconds;
}

double GridCosts::step_seconds(const GridPlan& plan) const {
  const std::vector<GridReplicas> replicas = replicas_of(plan);
  const auto count = static_cast<int>(plan.stages.size());
  double busiest = 0, path = 0, update_seconds = 0, reduction_seconds = 0;
  for (int s = 0; s < count; ++s) {
    const auto number = static_cast<size_t>(s);
    GridStage stage = plan.stages[number];
    double computing = 0, in = 0, out = 0;
    for (const GridReplicas& own : replicas) {
      stage.config = own.configs[number];
      double all = 0;
      for (int layer = stage.first; layer < stage.end; ++layer)
        all += compute(stage.config, plan.micro_batch, layer);
      computing = std::max(computing, all);
      if (s > 0)
        in = std::max(in,
                      send(stage.first, plan.micro_batch, stage.config, own.configs[number - 1]));
      if (s + 1 < count)
        out = std::max(
            out, send(stage.end - 1, plan.micro_batch, stage.config, own.configs[number + 1]));
      update_seconds = std::max(update_seconds, update(stage, plan.micro_batch));
    }
    const SendWeights weight = weights(count - s, s == 0);
    busiest = std::max(busiest, computing + weight.in_busy * in + weight.out_busy * out);
    path += computing + weight.in_path * in + weight.out_path * out;
    reduction_seconds = std::max(reduction_seconds, reduction_of(stage, number, replicas));
  }
  return (passes(plan.micro_batch, plan.replicas) - 1) * busiest + path + update_seconds +
         reduction_seconds;
}

std::vector<GridReplicas> replicas_of(const GridPlan& plan) {
  std::vector<GridReplicas> replicas(1);
  replicas.front().count = plan.replicas;
  for (const GridStage& stage : plan.stages) replicas.front().configs.push_back(stage.config);
  for (const GridReplicas& unlike : plan.unlike) {
    replicas.front().count -= unlike.count;
    replicas.push_back(unlike);
  }
  return replicas;
}

std::vector<std::pair<GridConfig, GridConfig>> neighbours(const std::vector<GridReplicas>& replicas,
                                                          size_t stage) {
  int degree = replicas.front().configs[stage].degree;
  for (const GridReplicas& own : replicas) degree = std::min(degree, own.configs[stage].degree);
  std::vector<std::pair<GridConfig, GridConfig>> pairs;
  for (size_t i = 0; i < replicas.size(); ++i) {
    const GridConfig own{replicas[i].configs[stage].type, degree};
    if (replicas[i].count > 1 || replicas.size() == 1) pairs.emplace_back(own, own);
    if (i + 1 < replicas.size())
      pairs.emplace_back(own, GridConfig{replicas[i + 1].configs[stage].type, degree});
  }
  return pairs;
}

int devices_of(const GridPlan& plan, int type) {
  int devices = 0;
  for (const GridReplicas& replicas : replicas_of(plan))
    for (const GridConfig config : replicas.configs)
      if (config.type == type) devices += config.degree * replicas.count;
  return devices;
}

}  // namespace motley
