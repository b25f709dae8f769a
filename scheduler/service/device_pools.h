#pragma once
// The fleet as policies see it: devices that jobs cannot tell apart, counted; and which of them are
// given. Plain values, one thread.

#include <string>
#include <vector>

#include "core/spec/fleet_spec.h"
#include "core/spec/job_spec.h"
#include "scheduler/policies/queue_view.h"

namespace motley {

class DevicePools {
 public:
  explicit DevicePools(FleetSpec fleet);

  const FleetSpec& fleet() const { return fleet_; }
  const std::vector<Pool>& pools() const { return pools_; }

  /// What the job asks for: without a count, every device it admits. kNoDevice, at the job's words,
  /// where the whole fleet would not do.
  Result<Alternative> demand(const JobSpec& job) const;

  /// Gives so many free devices of each pool to `owner`, the first of the fleet first; their ids.
  /// Empty, and nothing given, where too few are free.
  std::vector<std::string> give(const PoolCounts& wanted, int64_t owner);
  /// These to `owner`, whoever had them; ids that the fleet does not know are passed over.
  void give(const std::vector<std::string>& ids, int64_t owner);
  void free(int64_t owner);
  PoolCounts held_by(int64_t owner) const;
  PoolCounts free_counts() const;
  /// 0: nobody.
  int64_t owner_of(size_t device) const { return owners_[device]; }

  /// The devices of these ids, in fleet order.
  FleetSpec only(const std::vector<std::string>& ids) const;

 private:
  FleetSpec fleet_;
  std::vector<Pool> pools_;
  std::vector<size_t> pool_of_;  ///< by device
  std::vector<int64_t> owners_;  ///< by device; 0: free
};

}  // namespace motley
