#pragma once
// The parts of a plan that a job's author has decided (core/FORMATS.md, "job.yaml"): who computes
// what in some replicas, and who computes nothing. The planner finds the rest.

#include <optional>
#include <string>
#include <vector>

#include "core/ids.h"
#include "core/model.h"
#include "core/precision.h"
#include "core/recompute.h"

namespace motley {

/// Consecutive layers on one or more devices, as StagePlan has them.
struct PinnedStage {
  LayerIndex first_layer = 0;
  LayerIndex last_layer = 0;               ///< inclusive
  std::vector<std::string> devices;        ///< DeviceSpec::id
  std::vector<double> shares;              ///< one for each device; empty: equal ones
  std::vector<Recompute> recompute;        ///< one for each layer, or one for all of its blocks
  Precision precision = Precision::kAuto;  ///< kAuto: what its devices compute the job in

  bool operator==(const PinnedStage&) const = default;
};

struct PinnedReplica {
  std::vector<PinnedStage> stages;
  std::optional<int> micro_batch;  ///< samples; unset: found
  std::optional<int> grains;       ///< of each step; unset: found

  bool operator==(const PinnedReplica&) const = default;
};

struct PinSpec {
  std::vector<PinnedReplica> replicas;  ///< the plan has these, and perhaps others besides
  std::vector<std::string> leave_out;   ///< devices that no plan uses

  bool operator==(const PinSpec&) const = default;
};

}  // namespace motley
