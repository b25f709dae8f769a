#pragma once
// What the steps of one attempt took, rank by rank.

#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "core/attempt_result.h"
#include "core/plan.h"
#include "core/wire.h"

namespace motley {

inline constexpr int kWarmUpSteps = 5;  ///< of each attempt, not counted in medians

/// How long a step of the plan takes: the median of those that are added. Where groups average
/// every so many steps it is that of the means over so many in a row, as one of these waits for the
/// average; or the mean of all, where there are never so many in a row.
class TypicalStep {
 public:
  explicit TypicalStep(const Plan& plan);

  void add(double seconds);
  /// The next one does not follow the last.
  void interrupt() { row_.clear(); }
  /// Nothing for none.
  std::optional<double> seconds() const;

 private:
  size_t across_;
  std::deque<double> row_;  ///< the last ones, that follow each other
  std::vector<double> all_, means_;
};

class StepStatistics {
 public:
  explicit StepStatistics(const Plan& plan);

  void add(const StepReport& report);
  int64_t last_step() const { return last_step_; }  ///< of rank 0; 0 before the first

  /// Rank 0's, without the first `warm_up` steps and those with an evaluation or a save.
  std::optional<double> typical_step_seconds(int warm_up) const;
  std::vector<RankActual> ranks() const;
  /// AttemptResult's.
  std::optional<double> least_wait_seconds() const;
  SectionCount paced() const;  ///< of all ranks, so far

 private:
  struct RankSums {
    RankActual total;  ///< its means are left to ranks()
    int64_t seen = 0;
    int64_t counted = 0;
    double compute_seconds = 0, wait_seconds = 0;  ///< of those counted, as the next ones
    double update_seconds = 0, input_seconds = 0;
  };
  /// What of a step is known while ranks still tell of it.
  struct OpenStep {
    int ranks = 0;
    double least_wait = 0;
    bool counts = true;  ///< ordinary to all of them
  };
  void add_wait(const StepReport& report, bool counts);

  std::map<int64_t, OpenStep> open_;  ///< the last few: ranks are never far apart
  double least_wait_sum_ = 0;
  int64_t least_waits_ = 0;
  TypicalStep typical_;  ///< without any yet
  std::vector<RankSums> ranks_;
  std::vector<StepReport> steps_;  ///< of rank 0
  int64_t last_step_ = 0;
};

}  // namespace motley
