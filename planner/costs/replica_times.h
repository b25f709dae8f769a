#pragma once
// A step of one replica, however it is cut: its stages' times for the event simulation
// (planner/costs/pipeline_simulation.h).

#include <vector>

#include "core/plan.h"
#include "planner/costs/links.h"
#include "planner/costs/pipeline_simulation.h"
#include "planner/request.h"

namespace motley {

struct ReplicaTimes {
  std::vector<StageTimes> stages;
  /// Seconds that each rank computes in a step, by stage and member.
  std::vector<std::vector<double>> compute;
};

/// What is looked up once of the ranks of a plan. The links outlive it.
struct KnownRanks {
  explicit KnownRanks(const std::vector<LinkProfile>& measured) : links(measured) {}
  void add(const RankPlacement& rank, const DeviceProfile& device, double ready) {
    all.push_back({&device, links.number(rank.host), ready});
  }

  struct Known {
    const DeviceProfile* device = nullptr;
    int host = -1;     ///< among those with links
    double ready = 0;  ///< seconds from the step's begin until it is free for it
  };
  LinkIndex links;
  std::vector<Known> all;  ///< by rank
};

/// kInvalidSpec with the JSON pointer of the stage when the profile lacks a curve.
Result<ReplicaTimes> replica_times(const PlanRequest& request, const Plan& plan, int replica,
                                   const KnownRanks& ranks);

/// A step of a plan of one replica, the update before it included, sums of gradients apart; kNever
/// where the profile lacks a curve. What the plan's ranks are is of no interest.
double replica_seconds(const PlanRequest& request, const Plan& alone, const KnownRanks& ranks);

/// One rank for the whole model, computing nothing twice: what the curve "model" was measured of.
bool is_plain(const ReplicaPlan& replica);

}  // namespace motley
