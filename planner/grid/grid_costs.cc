#include "planner/grid/grid_costs.h"

#include <algorithm>

namespace motley {

int GridCosts::passes(int micro_batch, int replicas) const {
  const int64_t samples = int64_t{micro_batch} * replicas;
  return static_cast<int>((global_batch() + samples - 1) / samples);
}

double GridCosts::step_seconds(const GridPlan& plan) const {
  const auto count = static_cast<int>(plan.stages.size());
  double busiest = 0, path = 0, update_seconds = 0, reduction_seconds = 0;
  for (int s = 0; s < count; ++s) {
    const GridStage& stage = plan.stages[static_cast<size_t>(s)];
    const SendWeights weight = weights(count - s, s == 0);
    double busy = 0;
    for (int layer = stage.first; layer < stage.end; ++layer)
      busy += compute(stage.config, plan.micro_batch, layer);
    double way = busy;
    if (s > 0) {
      const GridConfig before = plan.stages[static_cast<size_t>(s) - 1].config;
      const double in = send(stage.first, plan.micro_batch, stage.config, before);
      busy += weight.in_busy * in;
      way += weight.in_path * in;
    }
    if (s + 1 < count) {
      const GridConfig after = plan.stages[static_cast<size_t>(s) + 1].config;
      const double out = send(stage.end - 1, plan.micro_batch, stage.config, after);
      busy += weight.out_busy * out;
      way += weight.out_path * out;
    }
    busiest = std::max(busiest, busy);
    path += way;
    update_seconds = std::max(update_seconds, update(stage, plan.micro_batch));
    reduction_seconds = std::max(reduction_seconds, reduction(stage, plan.replicas));
  }
  return (passes(plan.micro_batch, plan.replicas) - 1) * busiest + path + update_seconds +
         reduction_seconds;
}

}  // namespace motley
