#include "planner/pinned/pinned_bound.h"

#include <algorithm>

#include "planner/pipelines/pipeline_costs.h"
#include "planner/pipelines/pipeline_space.h"
#include "planner/pipelines/tensor_sets.h"

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
  MOTLEY_TRY(std::vector<DeviceGroup> groups, group_devices(request, GroupBy::kType));
  const PipelineSpace space(request, std::move(groups));
  for (const PricedPin& pin : pins)
    if (pin.pin().micro_batch.value_or(1) > space.micro_batches.back()) return 0.0;
  MOTLEY_TRY(const PipelineCosts costs,
             PipelineCosts::make(request, space.groups, space.micro_batches, nullptr));
  for (int group = 0; group < costs.groups(); ++group)
    if (!costs.priced(group)) return 0.0;
  return std::min(costs.least_seconds(space.there, space.batch()),
                  least_seconds_sharing(space, costs));
}

}  // namespace motley
