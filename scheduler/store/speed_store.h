#pragma once
// What was measured of jobs before they were promised devices, as the coordinator's memory keeps it
// (job_store.h): how fast a kind of device trains what kind of job.

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"
#include "scheduler/store/database.h"

namespace motley {

struct StoredSpeed {
  std::string workload = {};      ///< jobs that train the same on every device
  std::string traits = {};        ///< of a device, as far as jobs can tell devices apart
  std::string type = {};          ///< of a device, for people
  double samples_per_second = 0;  ///< of one device alone; 0: it cannot train the model
  int64_t job = 0;                ///< that was measured
  std::string name = {};          ///< of that job
  int64_t measured = 0;           ///< wall time, in nanoseconds since 1970
};

/// Replaces what was kept of the workload on that kind of device.
Result<Unit> save_speed(const Database& database, const StoredSpeed& speed);
/// Of all kinds of devices, by traits.
Result<std::vector<StoredSpeed>> list_speeds(const Database& database, const std::string& workload);
/// The newest first.
Result<std::vector<StoredSpeed>> newest_speeds(const Database& database, int most);
/// Those measured before `time`.
Result<Unit> remove_speeds(const Database& database, int64_t time);

}  // namespace motley
