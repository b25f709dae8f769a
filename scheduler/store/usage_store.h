#pragma once
// How much owners have had of the devices, for fair shares, as the coordinator's memory keeps it
// (job_store.h). What was used is worth half as much every kUsageHalfLife, as in Slurm's
// priorities: who had an idle cluster for a month need not yield for as long.

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/units.h"
#include "scheduler/store/database.h"

namespace motley {

inline constexpr Nanos kUsageHalfLife{int64_t{7 * 24 * 3600} * 1'000'000'000};

/// What is left of `worth` after that time.
double worth_after(double worth, Nanos age);

struct StoredUsage {
  std::string owner;
  double worth = 0;  ///< device-seconds at what the devices were worth to the jobs, as of `at`
  int64_t at = 0;    ///< wall time, in nanoseconds since 1970
};

Result<Unit> add_usage(const Database& database, const std::string& owner, double worth,
                       int64_t now);
/// Of all owners.
Result<std::vector<StoredUsage>> list_usage(const Database& database);

}  // namespace motley
