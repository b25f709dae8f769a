#pragma once
// A trace of jobs in virtual time: the policies and the state machine of the job service, with
// devices that only count. Deterministic; one thread; the only clock is the one that measures how
// long decisions take.

#include <string>
#include <vector>

#include "core/clock.h"
#include "core/result.h"
#include "scheduler/policies/policy.h"
#include "scheduler/simulate/trace.h"

namespace motley {

struct SimulatedJob {
  double arrival = 0;
  double started = 0;  ///< first
  double finished = 0;
  double alone = 0;  ///< seconds it would have taken on the fastest devices it could have had
  int stops = 0;     ///< to go on later

  double completion() const { return finished - arrival; }
};

struct TraceOutcome {
  std::vector<SimulatedJob> jobs;  ///< as in the trace
  double makespan = 0;             ///< from the first arrival to the last end
  double busy_device_seconds = 0;
  double device_seconds = 0;  ///< of all devices over the makespan
  int decisions = 0;
  double decision_seconds = 0;  ///< wall time of all
  double slowest_decision_seconds = 0;

  double mean_completion() const;
  /// The completion time that this share of jobs does not exceed.
  double completion_quantile(double share) const;
  double utilisation() const {
    return device_seconds > 0 ? busy_device_seconds / device_seconds : 0;
  }
  /// Jain's index of how many times longer jobs took than alone: 1 where all were slowed alike.
  double fairness() const;
  int stops() const;
};

struct SimulationRules {
  /// Policies that stop jobs decide again so often, besides at arrivals and ends.
  double round_seconds = 360;
};

/// kNoPlan, naming the job, where one fits none of the devices.
Result<TraceOutcome> simulate_trace(const std::vector<TraceJob>& trace,
                                    const std::vector<Pool>& pools, Policy& policy,
                                    const SimulationRules& rules, const Clock& clock);

}  // namespace motley
