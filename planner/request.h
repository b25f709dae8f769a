#pragma once
// What every form of search is asked.

#include <limits>
#include <vector>

#include "core/plan.h"
#include "core/profile.h"
#include "core/spec/fleet_spec.h"
#include "core/spec/job_spec.h"

namespace motley {

/// What one rank of a plan needs, as `motley-worker estimate` counts it.
struct RankMemory {
  Bytes total{0};  ///< of the memory its device's limit is for
  Bytes host{0};   ///< in host memory besides
};

struct PlanRequest {
  const JobSpec& job;
  /// All devices, or those admitted only: what job.devices does not admit is left out and said so.
  const FleetSpec& fleet;
  const Profile& profile;  ///< of every admitted device
  double memory_headroom = kMemoryHeadroom;
  bool tables_of_ranks = false;  ///< memory tables are of all that a rank needs, not of its engine
  /// The plan of the same job before devices were lost or added, to begin with: what is good enough
  /// then is planner/plain/plan_again.h's or, where it is cut, planner/mend_plan.h's. It outlives
  /// the request.
  const Plan* previous = nullptr;
  int least_replicas = 1;  ///< of pipelines
  /// Of pipelines: state that a stage has no room for lies in host memory; what is counted of
  /// layers is without it.
  bool host_state = false;
  /// Of whole devices, within what the job asks for: other numbers are other searches'.
  CountRange whole_devices = {};
  /// Of many devices: where this plan has replicas enough, pipelines whose stages hold more than
  /// its own are not looked for. It outlives the request.
  const Plan* held_by = nullptr;
  /// Seconds of a step: plans that take as long are of no interest. Where nothing quicker is found
  /// one of them may be the result, as it was priced, whether or not it fits.
  double below = std::numeric_limits<double>::infinity();
  /// Whether it matters how good the plan is: else its bound is what the search comes by.
  bool prove = true;
};

/// The same of other devices, measured alike, and from nothing.
inline PlanRequest asked_of(const PlanRequest& request, const FleetSpec& fleet) {
  PlanRequest asked{request.job, fleet, request.profile, request.memory_headroom,
                    request.tables_of_ranks};
  asked.prove = request.prove;
  return asked;
}

/// The same of a job that asks for something else.
inline PlanRequest asked_for(const PlanRequest& request, const JobSpec& job) {
  return {job,
          request.fleet,
          request.profile,
          request.memory_headroom,
          request.tables_of_ranks,
          request.previous,
          request.least_replicas,
          request.host_state,
          request.whole_devices,
          request.held_by,
          request.below,
          request.prove};
}

/// The same for what only matters if it is quicker.
inline PlanRequest unproved(PlanRequest request) {
  request.prove = false;
  return request;
}

}  // namespace motley
