#include "planner/pipelines/sharing_bound.h"

#include <algorithm>

#include "planner/pipelines/least_sums.h"
#include "planner/pipelines/step_bound.h"
#include "planner/pipelines/tensor_sets.h"

namespace motley {
namespace {

bool holds_all(const PipelineSpace& space, const PipelineCosts& costs) {
  for (int group = 0; group < costs.groups(); ++group)
    if (costs.priced(group) &&
        costs.fits(PipelineStage{group, 0, costs.layers() - 1}, space.micro_batches.front(), 1))
      return true;
  return false;
}

}  // namespace

double bound_of_sharing(const PipelineSpace& space, const PipelineCosts& costs, double step) {
  const SharingDevices sharing = sharing_devices(space, costs);
  if (!sharing.all) return 0;
  PipelineCosts free = costs;
  free.share_for_free(sharing.of_groups);
  SetTimes times(free, space.sets(kMostStages), space.micro_batches, space.few);
  times.want_stages(space.wanted().pipeline);
  const bool cut = !holds_all(space, costs);
  LeastSums sums(space.request, space.groups, kMostStages, cut);
  const HostSums hosts(space.request, space.groups, costs, sums, space.request.least_replicas > 1);
  const GroupCounts none(space.groups.size(), 0);
  const int low = space.wanted().data.value_or(1);
  PackingProblem problem = space.packing(low, space.most_replicas(), kNearly);
  const int devices = problem.most_devices;
  double least = step;
  const auto bound = [&](int more, int single_stages) {
    const int most = std::min(2 * more, devices) - 1;
    sums.share(most, cut && !space.few ? std::min(most, 2 * single_stages) : most);
    problem.most_devices = devices - more;
    problem.single_stages = single_stages;
    const double computed =
        free.least_seconds_sharing(none, space.there, space.batch(), problem.most_devices);
    least = std::min(least, StepBound(problem, &times, sums, hosts, computed).seconds(least));
  };
  // Devices besides one of each stage, twice as many each time; the same of replicas of one stage.
  for (int more = 1; more < devices; more *= 2) {
    bound(more, 0);
    for (int single = 1; cut && !space.few && single < 2 * more; single *= 2) bound(more, single);
  }
  return least;
}

}  // namespace motley
