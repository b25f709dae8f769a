#pragma once
// Who has which device, and how busy it is: what `motley top` and Prometheus are told.

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "scheduler/report/run_progress.h"
#include "scheduler/service/coordinator.h"
#include "scheduler/service/service_directory.h"

namespace motley {

/// What the attempt of a job that is under way says of itself; nothing where none is, and where it
/// says nothing that can be read.
std::optional<RunProgress> progress_of(const ServiceDirectory& directory, const StoredJob& job);

/// Without ranks; null for nothing.
nlohmann::json progress_json(const std::optional<RunProgress>& progress);
/// With them.
nlohmann::json whole_progress_json(const RunProgress& progress);

struct BusyJob {
  std::string name;
  std::optional<RunProgress> progress;
};

struct DeviceView {
  DeviceSpec device;
  int64_t job = 0;    ///< 0: nobody has it
  std::string state;  ///< "free", "given", "leftover" (of an attempt that is over), or its node's
  std::optional<RankProgress> rank;  ///< of that job on it
  std::optional<DeviceGauge> gauge;
};

struct FleetView {
  std::map<int64_t, BusyJob> jobs;  ///< that have devices
  std::vector<DeviceView> devices;  ///< in fleet order
};

/// `own`: of the coordinator's machine; agents tell of theirs.
FleetView view_of_fleet(const Coordinator& coordinator, const Database& kept,
                        const ServiceDirectory& directory, const std::vector<DeviceGauge>& own);

/// {"devices": […], "stragglers": […]}
nlohmann::json to_json(const FleetView& view);

}  // namespace motley
