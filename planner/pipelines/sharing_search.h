#pragma once
// Pipelines some of whose stages several devices of a host share (tensor parallelism), by uneven
// shares of whole heads: made of the pipelines with a device a stage that were found before, with
// stages put together and others shared otherwise. Of few devices and shares all are looked at.

#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "planner/costs/layer_memory.h"
#include "planner/pipelines/packed_plan.h"

namespace motley {

/// What is known of plans with a device a stage.
struct SingleStages {
  const PipelineCosts& costs;                  ///< before anything was learnt of memory
  const std::vector<ReplicaDesigns>& designs;  ///< of sets of devices
  double seconds = kNever;                     ///< of the quickest plan, if there is one
  double proved = kNever;                      ///< none of them takes less
  double least = 0;                            ///< of whole steps, for how sets are designed
  bool exact = false;                          ///< all of them were looked at
};

struct SharedPlan {
  std::optional<Plan> plan;  ///< quicker than what there is
  double least = kNever;     ///< seconds: no quicker plan that shares a stage takes less
  int64_t nodes = 0;
};

class SharingSearch {
 public:
  SharingSearch(const PipelineSpace& space, const MemoryCounter& counter);

  Result<SharedPlan> run(const SingleStages& single);

 private:
  Result<std::optional<Plan>> quickest(PipelineCosts costs, const SingleStages& single);
  bool design_all(const SingleStages& single);
  void add_sets(std::vector<ReplicaDesigns>* designs) const;
  bool share(ReplicaDesigns* designs);
  ReplicaDesigns design_anew(const GroupCounts& set);
  void design_sets();
  Result<Plan> quickest_that_fits(int least_replicas, int most_replicas);
  Result<PackedPlan> quickest_plan(int least_replicas, int most_replicas);
  Result<PackedPlan> quickest_packing(int least_replicas, int most_replicas);
  bool improve(const PackedPlan& packed);

  const PipelineSpace& space_;
  const MemoryCounter& counter_;
  PlanMaker maker_;
  std::optional<PipelineCosts> costs_;
  std::vector<ReplicaDesigns> designs_;        ///< before anything was learnt of memory
  std::vector<ReplicaDesigns> sets_;           ///< with what was
  std::set<std::pair<size_t, int>> improved_;  ///< sets, for samples
  int cuts_ = 0;                               ///< of a set
  bool all_ = false;                           ///< shares and numbers of grains are looked at
  bool exact_ = false;                         ///< and all orders and cuts
  bool has_plan_ = false;                      ///< one of interest, with a device a stage
  bool learnt_ = false;                        ///< of memory: some stages do not fit
  double limit_ = kNever;                      ///< seconds: what takes as long is of no use
  double least_ = 0;                           ///< of any plan
  double packed_ = kNever;                     ///< the same by what packings are possible
  int64_t nodes_ = 0;
};

}  // namespace motley
