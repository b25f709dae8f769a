#pragma once
// What every form of search is asked.

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
};

}  // namespace motley
