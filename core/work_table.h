#pragma once
// How much work a model's layers are, counted by the worker from the programs it would run, without
// any hardware (core/FORMATS.md, "work"): what simulated profiles are made of.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/profile.h"
#include "core/spec/fleet_spec.h"
#include "core/spec/job_spec.h"

namespace motley {

/// One pass of a micro-batch through a layer, forward or backward.
struct PassWork {
  double product_flops = 0;  ///< of matrix products and attention
  double product_bytes = 0;  ///< of their operands, each once
  double other_flops = 0;
  double other_bytes = 0;
  int operations = 0;
  int sums = 0;  ///< over the ranks that share the layer

  bool operator==(const PassWork&) const = default;
};

struct WorkPoint {
  int micro_batch = 0;
  Bytes memory{0};  ///< of the layer for itself, without optimizer state
  PassWork forward;
  PassWork backward;
};

/// As a LayerCurve, with work in place of seconds.
struct LayerWork {
  std::string layer = "model";
  double share = 1;
  Recompute recompute = Recompute::kNone;
  double sum_bytes_per_sample = 0;
  std::vector<WorkPoint> points = {};  ///< rising micro_batch, at least one
};

/// What of a device decides work and memory.
struct WorkDevice {
  DeviceKind kind = DeviceKind::kCpu;
  Precision precision = Precision::kFp32;  ///< never kAuto
  int threads = 1;
  Bytes memory_limit{INT64_MAX};  ///< larger micro-batches are of no interest

  bool operator==(const WorkDevice&) const = default;
};

/// Of one such device.
struct WorkTable {
  double update_flops = 0;  ///< norm, clip and optimizer of the whole model
  double update_bytes = 0;
  std::vector<LayerWork> layers;    ///< the whole model where it fits, and its layers by kind
  std::vector<MemoryPoint> memory;  ///< of the whole model; up to the first beyond the limit
};

/// What the worker is asked on its stdin.
struct WorkRequest {
  JobSpec job;
  std::vector<WorkDevice> devices;
};

nlohmann::json to_json(const WorkRequest& request);
Result<WorkRequest> work_request_from_json(const nlohmann::json& json);

/// One for each device of the request, in its order.
nlohmann::json to_json(const std::vector<WorkTable>& tables);
Result<std::vector<WorkTable>> work_tables_from_json(const nlohmann::json& json);

}  // namespace motley
