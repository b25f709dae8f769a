#pragma once
// Measures what the planner may know of a device: seconds against micro-batch, fixed cost of a
// step, update, memory, links, reduction. Everything is timed on the rank's own clock
// (worker/train/pacer.h), so a paced device is measured like any other and its parameters stay
// unknown to the planner.

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "comm/communicator.h"
#include "core/profile.h"
#include "core/result.h"
#include "core/spec/fleet_spec.h"
#include "core/spec/job_spec.h"
#include "kernels/device.h"
#include "worker/train/pacer.h"

namespace motley {

/// How long measuring may take.
struct ProfilerOptions {
  double seconds_per_point = 0.6;  ///< repetitions stop here, after the least number of them
  int least_repetitions = 3;       ///< one that is disturbed does not move the median
  /// No larger micro-batch once one repetition takes this long and three points exist.
  double longest_repetition = 1.0;
  int most_repetitions = 7;
  /// A repetition does its section as often as takes this long, and counts the mean: what stops a
  /// device every now and then (a quota of time) hits few of many short sections, so that their
  /// median would not know it.
  double least_repetition_seconds = 0;
  // Of single layers, of which there are several kinds to measure:
  double seconds_per_layer_point = 0.1;
  double longest_layer_repetition = 0.25;
  double seconds_per_lone_layer_point = 0.3;  ///< where the whole model cannot be measured

  /// As many seconds as lets the least number of repetitions fill a point.
  double share_of_point(double seconds) const { return seconds / least_repetitions; }
};

/// Called with what is being measured, e.g. "micro-batch 8", and with nothing each time that it is
/// measured once more: on a slow device all repetitions take minutes, and these are signs of life.
using ProfilerProgress = std::function<void(const std::string& what)>;

/// Measures this rank's device alone. kNoPlan when not even one sample fits `memory_limit`.
Result<DeviceProfile> measure_device(const JobSpec& job, Device& device, Bytes memory_limit,
                                     Pacer& pacer, const ProfilerOptions& options,
                                     const ProfilerProgress& progress);

/// Adds the curves of the layers by kind, whole and shared, of all that fit the memory limit each
/// for itself and without optimizer state: of devices too small for the model these are all there
/// is. Needs memory_limit and, where "model" has been measured, step_overhead_seconds and
/// update_seconds; finds these itself where it has not.
Result<Unit> measure_layers(const JobSpec& job, Device& device, Pacer& pacer,
                            const ProfilerOptions& options, const ProfilerProgress& progress,
                            DeviceProfile* profile);

/// What a rank drives, borrowed: one device, once in each precision that the job leaves open
/// (at least one). The profile is of the fastest.
struct RankDevice {
  std::span<const std::unique_ptr<Device>> devices;
  Bytes memory_limit{0};
  Pacer& pacer;
};

/// All ranks together, rank r driving fleet.devices[r]: every device at the same time, then links
/// and the sum of this job's gradient as a training step forms it. The same Profile on every rank.
Result<Profile> measure_fleet(const JobSpec& job, const FleetSpec& fleet, RankDevice own,
                              Communicator& communicator, const ProfilerProgress& progress);

}  // namespace motley
