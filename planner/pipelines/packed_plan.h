#pragma once
// From a packing to a plan: grains dealt, devices placed, priced by predict(), its ranks counted.

#include <optional>
#include <utility>
#include <vector>

#include "planner/pipelines/pipeline_space.h"
#include "planner/pipelines/placement.h"
#include "planner/plain/deal.h"
#include "planner/plain/search.h"

namespace motley {

/// Why a plan leaves a device out, where nothing else is known.
inline constexpr const char* kNoneQuickerWith = "no plan found with it is quicker";

/// Puts the plan's ranks in order by host, as a hostfile lists them, whatever order pipelines go
/// through the hosts in.
void keep_hosts_together(Plan* plan);

struct PackedPlan {
  Plan plan;                                   ///< that has no owners yet, unless it was counted
  std::vector<std::pair<size_t, int>> shares;  ///< by replica, its set of devices and samples
  std::vector<Pipeline> pipelines;             ///< by replica

  double seconds() const { return plan.prediction.step_seconds; }
};

/// Outlived by what it is made of.
class PlanMaker {
 public:
  /// Rounds of counting before it is given up.
  static constexpr int kMostCounts = 48;

  PlanMaker(const PipelineSpace& space, const CountMemory& count) : space_(space), count_(count) {}

  /// Of the quickest designs of a packing's sets, dealt so that the last replica is done soonest.
  /// kNoPlan where no host has the devices that share a stage.
  Result<PackedPlan> make(const Packing& packing, const PipelineCosts& costs,
                          std::vector<ReplicaDesigns>* sets);

  /// Packings know nothing of what the ends of a replica exchange: of few devices other sets are
  /// tried as a single replica, in each number of stages, as long as they compute sooner than the
  /// best step.
  Result<Unit> try_singles(const PackingProblem& problem, const PipelineCosts& costs,
                           std::vector<ReplicaDesigns>* sets, PackedPlan* best);

  /// Whether every rank's bytes fit its device; they go into the prediction. Where they do not,
  /// what layers need was taken for too little, which `costs` learn: in the first rounds only that
  /// the stage does not fit, as what it needs besides its layers depends on the plan.
  Result<bool> count_memory(int round, PipelineCosts* costs, PackedPlan* packed) const;
  /// The plan, saying nothing of memory, for which tables may say that it does not fit.
  Plan uncounted(PackedPlan packed) const;

  int64_t nodes() const { return nodes_; }

 private:
  double enough_seconds(const Packing& packing, std::vector<ReplicaDesigns>* sets) const;
  GrainTable table_of(ReplicaDesigns* set, double seconds) const;
  Deal deal_over(const Packing& packing, std::vector<ReplicaDesigns>* sets);
  Result<Unit> place(const PipelineCosts& costs, const std::vector<int>& grains,
                     PackedPlan* packed) const;
  std::optional<PackedPlan> over_hosts(size_t hosts, HostOrder order, const PipelineCosts& costs,
                                       const PackedPlan& packed,
                                       std::vector<PlacedStages>* placed) const;
  Result<Unit> bring_ends_together(const PipelineCosts& costs, const std::vector<int>& grains,
                                   std::vector<PlacedStages> placed, PackedPlan* packed) const;
  /// As predict_step() has it, `enough` included.
  Result<Unit> price(const PipelineCosts& costs, const std::vector<int>& grains,
                     const std::vector<PlacedStages>& placed, double enough,
                     PackedPlan* packed) const;
  void add_replica(const Pipeline& pipeline, const PipelineCosts& costs,
                   const std::vector<std::vector<const DeviceSpec*>>& devices, int grains,
                   Plan* plan) const;
  void leave_out_others(Plan* plan) const;

  const PipelineSpace& space_;
  const CountMemory& count_;
  /// By the pipelines of a packing and their samples: searches come by the same more than once.
  std::vector<std::pair<std::vector<std::pair<Pipeline, int>>, PackedPlan>> made_;
  int64_t nodes_ = 0;
};

}  // namespace motley
