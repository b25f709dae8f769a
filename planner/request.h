#pragma once
// What every form of search is asked.

#include <vector>

#include "core/plan.h"
#include "core/profile.h"
#include "core/spec/fleet_spec.h"
#include "core/spec/job_spec.h"

namespace motley {

/// Share of each memory limit left free unless told otherwise.
inline constexpr double kMemoryHeadroom = 0.05;

struct PlanRequest {
  const JobSpec& job;
  /// All devices, or those admitted only: what job.devices does not admit is left out and said so.
  const FleetSpec& fleet;
  const Profile& profile;  ///< of every admitted device
  double memory_headroom = kMemoryHeadroom;
  /// For predict() of a plan that is cut: bytes of each rank as `motley-worker estimate` counts
  /// them. Empty: plain data parallelism is looked up in the profile, any other stays 0.
  std::vector<Bytes> counted = {};
};

}  // namespace motley
