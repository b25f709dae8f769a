#pragma once
// Small planning problems for tests: a job, a fleet, and what was measured of it.

#include <random>
#include <string>
#include <vector>

#include "planner/request.h"

namespace motley::testing {

/// A device whose micro-batch of b samples takes fixed + per_sample * b seconds.
struct LinearDevice {
  std::string host = "localhost";
  std::string type = "card";
  double fixed = 0.001;
  double per_sample = 0.010;
  double step_overhead = 0;
  double update = 0;
  int largest_micro_batch = 16;  ///< that memory allows, of a table up to 2 more
};

struct PlanningCase {
  JobSpec job;
  FleetSpec fleet;
  Profile profile;

  /// A one-layer model, no devices yet.
  explicit PlanningCase(int global_batch);
  PlanRequest request() const { return {job, fleet, profile}; }
  /// Also for a device with any curve: `add` it, then change profile.devices.back().
  PlanningCase& add(const LinearDevice& device);
  PlanningCase& add_reduction(int ranks, double seconds, std::vector<std::string> hosts = {});
  PlanningCase& add_link(const std::string& a, const std::string& b, double latency,
                         double bytes_per_second);
  /// The devices are CPUs at the speed they have: where they are on several hosts, sums go on
  /// beside computing.
  PlanningCase& at_own_speed();
  /// The same devices in another order.
  PlanningCase permuted(const std::vector<size_t>& order) const;
  /// With every measured time multiplied.
  PlanningCase scaled(double factor) const;
};

/// Of an embedding's bytes with so many heads, those of what the head has, too: a rank with both
/// holds them once.
Bytes tied_bytes(const ModelSpec& model, Bytes embedding, int heads);

/// Up to `most_devices` devices with curves that need not be convex nor rise, memories, overheads,
/// links or measured reductions, on up to three hosts; a grain given by the job in a third of
/// cases, often not dividing the batch; small enough to enumerate.
PlanningCase random_case(std::mt19937& random, int most_devices);

}  // namespace motley::testing
