#include "planner/pinned/pinned_bound.h"

#include <algorithm>

#include "planner/pipelines/pipeline_costs.h"
#include "planner/pipelines/pipeline_space.h"

namespace motley {
namespace {

bool has_shared_stage(const PricedPin& pin) {
  return std::any_of(pin.stages().begin(), pin.stages().end(),
                     [](const StagePlan& stage) { return stage.ranks.size() > 1; });
}

}  // namespace

Result<double> least_seconds_beside(const PlanRequest& request,
                                    const std::vector<PricedPin>& pins) {
  if (std::any_of(pins.begin(), pins.end(), has_shared_stage)) return 0.0;
  MOTLEY_TRY(const std::vector<DeviceGroup> groups, group_devices(request, GroupBy::kType));
  std::vector<int> sizes = micro_batches_of(request, groups, grain_of(request.job));
  for (const PricedPin& pin : pins)
    if (pin.pin().micro_batch.value_or(1) > sizes.back()) return 0.0;
  MOTLEY_TRY(const PipelineCosts costs, PipelineCosts::make(request, groups, sizes, nullptr));
  std::vector<int> counts;
  for (size_t group = 0; group < groups.size(); ++group) {
    if (!costs.priced(static_cast<int>(group))) return 0.0;
    counts.push_back(groups[group].count());
  }
  return costs.least_seconds(counts, request.job.train.global_batch);
}

}  // namespace motley
