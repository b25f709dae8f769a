#pragma once
// How quick a step could be at best: the best packing of what sets of devices may compute
// (planner/pipelines/set_times.h) and the least that exchanging its gradients takes.

#include <algorithm>
#include <utility>
#include <vector>

#include "planner/pipelines/host_sums.h"
#include "planner/pipelines/least_sums.h"
#include "planner/pipelines/set_times.h"

namespace motley {

class StepBound {
 public:
  /// Packings of some numbers of replicas.
  struct Numbers {
    int low = 1, high = 1;
    double sums = 0;   ///< seconds: none exchanges gradients in less
    double least = 0;  ///< seconds: no packing takes less
    double up_to = 0;  ///< seconds: packings that make a quicker step were looked for
    /// Of few devices a packing, of many the sets of one in parts; empty: none was found.
    Packing rests_on;
  };

  /// Of any number of replicas; `least`: no packing is quicker.
  StepBound(const PackingProblem& problem, SetTimes* times, const LeastSums& sums,
            const HostSums& hosts, double least);

  /// Of the packing that may be quickest, without its sums; where none can be below `step`, the
  /// least that such a one would take.
  double target_seconds(double step);
  /// The same of so many replicas; kNever where the exchange leaves none below `step`.
  double target_seconds(int replicas, double step);
  /// No plan that is quicker than `step` takes less.
  double seconds(double step);
  /// No plan some rank of which holds more than this part of all elements does.
  double seconds_holding(double held, double step);
  /// Those of which plans may take less than `step`, the likely first, at most so many.
  std::vector<Numbers> likely(double step, size_t most);
  /// Packings of so many replicas and more are proved to take no less.
  void raise(int replicas, const std::vector<double>& least_of_replicas);
  /// While the bound is below `step`, looks for the quickest pipelines of the sets that it rests
  /// on; false where nothing is left to look for. They are among `found`, with their sets.
  bool tighten(double step, int64_t most_nodes, std::vector<std::pair<size_t, Pipeline>>* found);

 private:
  double step_of(const Numbers& numbers) const {
    return hosts_.step_seconds(numbers.least, numbers.sums);
  }
  /// Whether nothing more would be found.
  static bool is_known(const Numbers& numbers, double step) {
    return !numbers.rests_on.empty() || step <= numbers.up_to;
  }
  /// Those whose bound, by `step_of`, is least, when it was looked for; of no interest from `step`
  /// on.
  template <class StepOf>
  Numbers& least_numbers(double step, StepOf step_of);
  Numbers& least_numbers(double step);
  double computed_within(double step, double sums) const;
  /// From `step` on packings are of no interest.
  void find(Numbers* numbers, double step);
  void find_single(Numbers* numbers);
  bool prove(size_t set, double seconds, int64_t most_nodes,
             std::vector<std::pair<size_t, Pipeline>>* found);

  PackingProblem problem_;
  SetTimes* times_;
  LeastSums sums_;
  HostSums hosts_;
  std::vector<Numbers> numbers_;  ///< rising
  double single_least_ = 0;       ///< seconds: no single replica takes less, however it is cut
  bool few_;
};

}  // namespace motley
