#pragma once
// What the steps of one attempt took, rank by rank.

#include <optional>
#include <vector>

#include "core/attempt_result.h"
#include "core/plan.h"
#include "core/wire.h"

namespace motley {

inline constexpr int kWarmUpSteps = 5;  ///< of each attempt, not counted in medians

class StepStatistics {
 public:
  explicit StepStatistics(const Plan& plan);

  void add(const StepReport& report);
  int64_t last_step() const { return last_step_; }  ///< of rank 0; 0 before the first

  /// Rank 0's seconds of a step, without the first `warm_up` ones and those with an evaluation or a
  /// save.
  std::optional<double> median_step_seconds(int warm_up) const;
  std::vector<RankActual> ranks() const;
  SectionCount paced() const;  ///< of all ranks, so far

 private:
  struct RankSums {
    RankActual total;  ///< its means are left to ranks()
    int64_t seen = 0;
    int64_t counted = 0;
    double compute_seconds = 0, wait_seconds = 0, update_seconds = 0;  ///< of those counted
  };
  std::vector<RankSums> ranks_;
  std::vector<StepReport> steps_;  ///< of rank 0
  int64_t last_step_ = 0;
};

}  // namespace motley
