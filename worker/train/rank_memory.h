#pragma once
// All that a rank of a plan holds of memory that grows with the model (core/rank_memory.h).

#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "core/device_islands.h"
#include "core/plan.h"
#include "core/spec/fleet_spec.h"
#include "core/spec/job_spec.h"
#include "core/sync_groups.h"
#include "worker/engine/engine.h"
#include "worker/train/slice_classes.h"
#include "worker/train/slice_exchange.h"

namespace motley {

/// What ranks of a valid plan will count on their accounts, without allocating or any hardware.
/// What they have in common is found once, by whichever is counted first. Borrows job and plan.
class RankMemoryCounter {
 public:
  /// Those that NCCL connects of a group's part (core/sync_groups.h).
  using IslandsOf = std::function<DeviceIslands(const Plan& part)>;

  RankMemoryCounter(const JobSpec& job, const Plan& plan, IslandsOf islands);

  MemoryEstimate count(Rank rank, const DeviceTraits& device);

 private:
  /// Ranks that train together.
  struct Group {
    Group(GroupPart its, const ModelSpec& model, const IslandsOf& islands);
    const SliceExchangeCounter& exchange(const ElementBytes& elements);

    GroupPart part;
    PlanClasses classes;
    std::map<std::pair<int, int>, SliceExchangeCounter> exchanges;  ///< by bytes of elements
  };
  Group& group_of(Rank rank);

  const JobSpec& job_;
  const Plan& plan_;
  const IslandsOf islands_;
  PlanClasses classes_;  ///< of all groups together
  const std::vector<int> group_of_rank_;
  std::map<int, std::unique_ptr<Group>> groups_;
  std::map<Rank, int64_t> owned_;  ///< elements
};

/// Of a single rank, with these islands of its group's part.
MemoryEstimate estimate_rank(const JobSpec& job, const Plan& plan, Rank rank,
                             const DeviceTraits& device, const DeviceIslands& islands = {});

/// Of a device driven for the job.
DeviceTraits traits_driven(const JobSpec& job, const DeviceSpec& device, Precision planned);

}  // namespace motley
