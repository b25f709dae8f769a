#pragma once
// How quick a step could be at best: the best packing of what sets of devices may compute
// (planner/pipelines/set_times.h) and the least that exchanging its gradients takes.

#include <utility>
#include <vector>

#include "planner/pipelines/least_sums.h"
#include "planner/pipelines/set_times.h"

namespace motley {

class StepBound {
 public:
  /// Of any number of replicas; `least`: no packing is quicker.
  StepBound(const PackingProblem& problem, SetTimes* times, const LeastSums& sums, double least);

  /// Of the packing that may be quickest, without its sums.
  double target_seconds() const { return least_[least_at()]; }
  /// No plan that is quicker than `step` takes less.
  double seconds(double step) const;
  /// No plan some rank of which holds more than this part of all elements does.
  double seconds_holding(double held, double step) const;
  /// Packings of so many replicas and more are proved to take no less.
  void raise(int replicas, const std::vector<double>& least_of_replicas);
  /// While the bound is below `step`, looks for the quickest pipelines of the sets that it rests
  /// on; false where nothing is left to look for. They are among `found`, with their sets.
  bool tighten(double step, int64_t most_nodes, std::vector<std::pair<size_t, Pipeline>>* found);

 private:
  int least_replicas(double step) const;
  size_t least_at() const;
  void find(size_t at, double least);
  void find_single();
  bool prove(size_t set, double seconds, int64_t most_nodes,
             std::vector<std::pair<size_t, Pipeline>>* found);

  PackingProblem problem_;
  SetTimes* times_;
  LeastSums sums_;
  std::vector<double> least_;      ///< by number of replicas, 1 on; of many devices one and more
  std::vector<Packing> rests_on_;  ///< sets of a packing for each
  bool few_;
};

}  // namespace motley
