#pragma once
// What a policy sees of the service: devices counted by type, and the jobs that wait or run. Plain
// values: no clock, no file, no thread.

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace motley {

/// Devices of one type that may be given to jobs, whatever hosts they are on.
struct Pool {
  std::string type;
  int devices = 0;
};

using PoolCounts = std::vector<int>;  ///< devices by pool, as many entries as there are pools
int sum_of(const PoolCounts& counts);
/// Whether there are as many of each pool among the others.
bool within(const PoolCounts& counts, const PoolCounts& others);

inline constexpr double kUnknownSeconds = std::numeric_limits<double>::infinity();

/// How fast a job goes on which devices, in units of its work a second (steps, samples), as
/// measured or planned.
class SpeedTable {
 public:
  /// Of a data-parallel job on several types: what each further type costs of the sum of speeds.
  static constexpr double kLossOfFurtherTypes = 0.05;

  explicit SpeedTable(size_t pools) : points_(pools) {}
  /// On so many devices of one pool. Counts of a pool rise from call to call; rates are above 0.
  void add(size_t pool, int devices, double rate);

  /// On these devices: between counts that are known on the line between, beyond the last at the
  /// speed of a device as there, below the first likewise. Of several pools each device goes at the
  /// speed it has among as many of its own type. 0 where nothing is known of a pool that is used.
  double rate(const PoolCounts& devices) const;
  double rate(size_t pool, int devices) const;
  /// Of as many of one pool, of that where it is most.
  double fastest_rate(int devices) const;
  /// Whether anything is known of it.
  bool knows(size_t pool) const { return !points_[pool].empty(); }

 private:
  struct Point {
    int devices = 0;
    double rate = 0;
  };
  std::vector<std::vector<Point>> points_;  ///< by pool, devices rising
};

/// Of several pools together at most so many devices.
struct SharedLimit {
  std::vector<size_t> pools;
  int most = 0;
};

/// One of the sets of devices that would do for a job.
struct Alternative {
  int least = 1;     ///< devices
  int most = 1;      ///< it makes use of
  PoolCounts limit;  ///< by pool; 0: not admitted
  bool mix = true;   ///< of several types
  /// Beside `limit`; of two sets of pools one is within the other, or they have none in common.
  std::vector<SharedLimit> shared = {};
  /// Too little, as are fewer devices than any of these.
  std::vector<PoolCounts> unfit = {};

  /// How many more of that pool its limits leave beside these.
  int room(const PoolCounts& beside, size_t pool) const;
  /// The fewest of one pool alone that would do, whether there are so many or not.
  int least_in(size_t pool) const;
  /// Some of these that would do, `least` where so few do, those of the first pools of `order`
  /// first; empty: none.
  PoolCounts first_of(const PoolCounts& from, const std::vector<size_t>& order) const;
  /// Whether some of these would do.
  bool found_in(const PoolCounts& from) const;
  /// Whether exactly these would do.
  bool admits(const PoolCounts& devices) const;
  /// How many of these it admits at once, however many it makes use of.
  int usable_of(const PoolCounts& devices) const;

 private:
  bool fill(const PoolCounts& from, const std::vector<size_t>& order, PoolCounts* devices) const;
  bool grow_beyond(size_t set, const PoolCounts& from, const std::vector<size_t>& order,
                   PoolCounts* devices) const;
  bool is_unfit(const PoolCounts& devices) const;
};

struct JobView {
  int64_t id = 0;  ///< rises with submission
  std::string owner;
  int priority = 50;                ///< 0 to 100; higher goes first
  double weight = 1;                ///< of its owner's share
  double submitted = 0;             ///< seconds on the service's clock
  std::vector<Alternative> any_of;  ///< the earlier ones are liked better
  SpeedTable speeds{0};
  double work_left = kUnknownSeconds;  ///< in units of `speeds`
  double longest = kUnknownSeconds;    ///< seconds it may still run, whatever work is left
  bool measures = false;      ///< how fast it is on some devices: until then it is promised none
  PoolCounts held;            ///< devices it runs on; empty: it waits
  bool moves = true;          ///< may be stopped to go on at once on other devices
  bool just_started = false;  ///< not stopped for others of its priority
  bool preemptible = true;    ///< may be stopped with a checkpoint and go on later
  double switch_seconds = 0;  ///< a stop and a start cost it
  double served = 0;          ///< device-seconds its owner has had, at their worth (fair share)

  bool runs() const { return !held.empty(); }
  /// Until it ends on these devices, with a stop and a start if it runs on others.
  double seconds_on(const PoolCounts& devices) const {
    return seconds_on(devices, speeds.rate(devices));
  }
  double seconds_on(const PoolCounts& devices, double rate) const {
    return seconds_at(rate) + (runs() && devices != held ? switch_seconds : 0);
  }
  /// Until it ends at this rate; kUnknownSeconds at none.
  double seconds_at(double rate) const;
  /// What a device is worth to it that is one of so many which go at this rate together: 1 of the
  /// type that is fastest for as many.
  double worth_of(double rate, int devices) const;
};

struct QueueView {
  double now = 0;  ///< seconds
  std::vector<Pool> pools;
  std::vector<JobView> jobs;  ///< those that could run and those that do, by id
};

}  // namespace motley
