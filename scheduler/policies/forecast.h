#pragma once
// When a job that waits would start: the policy's own decisions, carried on in virtual time until
// it has devices.

#include <cstdint>
#include <optional>

#include "scheduler/policies/policy.h"

namespace motley {

/// Seconds from `view.now`, if nothing is submitted, fails or is asked for meanwhile, jobs go as
/// fast as their speeds say, and those that are measured need no more than they take now. Nothing
/// where somebody before it runs nobody knows how long, or where it takes too many decisions to
/// tell. The policy sees other queues meanwhile: look_at() before its ranks are used again.
std::optional<double> seconds_until_start(Policy& policy, QueueView view, int64_t job);

}  // namespace motley
