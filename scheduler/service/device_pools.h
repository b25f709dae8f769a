#pragma once
// The fleet as policies see it: devices that jobs cannot tell apart, counted; and which of them are
// given. The fleet changes as nodes come and go. Plain values, one thread.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/spec/fleet_spec.h"
#include "core/spec/job_spec.h"
#include "scheduler/policies/queue_view.h"

namespace motley {

/// What may be done with the devices of a node.
enum class DeviceAccess : uint8_t {
  kOpen,     ///< they are given to jobs
  kAwaited,  ///< not now, but soon: jobs wait for them
  kClosed,   ///< whoever has them keeps them; nobody else gets them
};

/// What would do for a job of the devices there are.
struct Demand {
  std::vector<Alternative> any_of;
  std::vector<std::string> unmet;  ///< of the alternatives that are not among these, why not
};

/// What is known not to do for a job.
struct Unfit {
  std::vector<size_t> pools;              ///< none of their devices can do it
  std::vector<PoolCounts> sets = {};      ///< too little, as are fewer of them
  std::vector<std::string> devices = {};  ///< one by one, by id
};

class DevicePools {
 public:
  DevicePools() = default;
  /// All of its devices open.
  explicit DevicePools(FleetSpec fleet);

  /// These are the devices of `host`, none of which is among the first ones, from now on; whoever
  /// has one that goes has it until free(). Its pace counts where the devices so far have none.
  void put(const std::string& host, const FleetSpec& part, DeviceAccess access);
  void set_access(const std::string& host, DeviceAccess access);
  /// Closed, whatever becomes of their host, until they are taken back as often.
  void set_aside(const std::vector<std::string>& ids);
  void take_back(const std::vector<std::string>& ids);
  /// The devices of a host that was put are no more.
  void remove(const std::string& host);

  const FleetSpec& fleet() const { return fleet_; }
  /// Devices that are open or given. A pool keeps its place when others come.
  std::vector<Pool> pools() const;
  size_t pool_count() const { return types_.size(); }
  /// What jobs can tell of a pool's devices, the same in every coordinator; one word for programs.
  const std::string& traits(size_t pool) const { return traits_[pool]; }
  const std::string& type(size_t pool) const { return types_[pool]; }
  /// Of a device; nothing where it is not there.
  std::optional<size_t> pool_of(const std::string& id) const;

  /// What the job asks for of those that are not closed: without a count, every device it admits.
  /// Nothing in `any_of` where they would not do.
  Demand demand(const JobSpec& job, const Unfit& unfit) const;
  /// Whether all devices there are would do, whatever becomes of them: kNoDevice, at the job's
  /// words.
  Result<Unit> could_ever(const JobSpec& job, const Unfit& unfit = {}) const;
  /// What a job is left with that has these devices, and may have none beside them.
  Alternative demand_held(int64_t owner) const;

  /// Gives so many open, free devices of each pool to `owner`, none of `but`: those on which least
  /// has failed running, of as few hosts as come of taking most from one each time, and of those
  /// that have as many the one with least to spare; their ids. Empty, and nothing given, where too
  /// few are free.
  std::vector<std::string> give(const PoolCounts& wanted, int64_t owner,
                                const std::vector<std::string>& but = {});
  /// These to `owner`, whoever had them; ids that the fleet does not know are passed over.
  void give(const std::vector<std::string>& ids, int64_t owner);
  void free(int64_t owner);
  /// How something ended on these.
  void judge(const std::vector<std::string>& ids, bool well);
  /// That had the device alone, one after the other until now.
  int failures_of(const std::string& id) const;
  PoolCounts held_by(int64_t owner) const;
  PoolCounts free_counts() const;                  ///< of those that are open
  PoolCounts closed_held_by(int64_t owner) const;  ///< those that nobody gets after it
  /// 0: nobody.
  int64_t owner_of(size_t device) const { return slots_[device].owner; }
  DeviceAccess access_of(size_t device) const {
    return is_aside(device) ? DeviceAccess::kClosed : slots_[device].access;
  }
  bool is_aside(size_t device) const { return aside_.contains(fleet_.devices[device].id); }

  /// The job as an attempt on these devices does it: of its alternatives the first that admits all
  /// of them.
  static JobSpec job_on(const FleetSpec& devices, JobSpec job);

  /// The devices of these ids, in fleet order.
  FleetSpec only(const std::vector<std::string>& ids) const;

 private:
  struct Slot {
    size_t pool = 0;
    DeviceAccess access = DeviceAccess::kOpen;
    int64_t owner = 0;  ///< what owners_ says of the device
  };
  /// Empty where there are too few.
  std::vector<size_t> choose(const PoolCounts& wanted, const std::vector<std::string>& but) const;
  const std::string& best_host(const std::vector<size_t>& devices, const PoolCounts& missing) const;
  Slot slot_for(const DeviceSpec& device, DeviceAccess access);
  void set_owner(size_t device, int64_t owner);
  Demand find_demand(const JobSpec& job, const Unfit& unfit) const;
  Result<Alternative> demand(const JobSpec& job, const DeviceFilter& filter, const FleetSpec& of,
                             const Unfit& unfit) const;
  Alternative limits_of(const JobSpec& job, const DeviceFilter& filter, const FleetSpec& of,
                        const Unfit& unfit) const;
  std::string types_in(const std::vector<size_t>& pools) const;
  PoolCounts none() const { return PoolCounts(types_.size(), 0); }
  bool is_free(size_t device) const {
    return access_of(device) == DeviceAccess::kOpen && owner_of(device) == 0;
  }

  FleetSpec fleet_;                        ///< as given, then hosts that were put, by name
  size_t own_ = 0;                         ///< devices that were given at first
  std::vector<Slot> slots_;                ///< by device
  std::map<std::string, int64_t> owners_;  ///< by id, of devices that are not there, too
  std::multiset<std::string> aside_;       ///< ids, also of devices that are not there
  std::map<std::string, int> failures_;    ///< by id, of those with any
  std::vector<std::string> types_;         ///< by pool
  std::vector<std::string> traits_;        ///< by pool
  std::map<std::string, size_t> pool_of_traits_;
  /// Of these devices, by what jobs ask for: many jobs ask for the same.
  mutable std::unordered_map<std::string, Demand> demands_;
};

}  // namespace motley
