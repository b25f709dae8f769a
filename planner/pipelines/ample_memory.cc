#include "planner/pipelines/ample_memory.h"

#include <algorithm>
#include <utility>

#include "planner/pipelines/pipeline_space.h"

namespace motley {
namespace {

/// Copies on their way to others and to checkpoints are no layer's.
constexpr double kWithCopies = 2;

}  // namespace

Result<bool> is_memory_ample(const PlanRequest& request, const MemoryCounter& counter) {
  MOTLEY_TRY(std::vector<DeviceGroup> groups, group_devices(request, GroupBy::kType));
  const PipelineSpace space(request, std::move(groups));
  MOTLEY_TRY(PipelineCosts costs,
             PipelineCosts::make(request, space.groups, space.micro_batches, counter.layers));
  costs.scale_layers(kWithCopies);
  for (int group = 0; group < costs.groups(); ++group)
    for (const int size : space.micro_batches) {
      const int in_flight = std::min(space.longest, (space.batch() + size - 1) / size);
      if (!costs.fits({group, 0, costs.layers() - 1}, size, in_flight)) return false;
    }
  return true;
}

}  // namespace motley
