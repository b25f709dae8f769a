#pragma once
// What the coordinator needs of whoever performs attempts: real processes, or a script in tests and
// simulations. Every action is named by (job, epoch) and may be repeated: by a coordinator that was
// killed after it had acted, for one.

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "core/ids.h"
#include "core/result.h"
#include "core/spec/fleet_spec.h"
#include "core/spec/job_spec.h"
#include "scheduler/queue/job_fsm.h"

namespace motley {

struct AttemptId {
  int64_t job = 0;
  Epoch epoch{0};
  auto operator<=>(const AttemptId&) const = default;
};

struct AttemptOrder {
  AttemptId id;
  JobSpec job;
  FleetSpec fleet;                       ///< the devices it is given
  std::vector<std::string> agents = {};  ///< hosts of these that are reached through their agents
  Bytes log_limit{0};                    ///< of what it prints; 0: none
  bool measure = false;                  ///< how fast each of them is; nothing is trained
  /// Path of the run that JobSpec's `resumes` is about; empty: none, or it is not there any more.
  std::string from = {};
};

/// Of an attempt that nobody waits for something still runs.
struct Leftover {
  AttemptId id;
  std::vector<std::string> devices;  ///< the ids of those that it was given
  Nanos stop_grace{0};               ///< that its job asks for
};

class AttemptLauncher {
 public:
  /// How an attempt ended, told once and never from within a call of this class.
  using OnOver = std::function<void(int64_t job, const AttemptOver& over)>;
  /// Of one that was told as unclean, or as a leftover, nothing runs any more; told likewise.
  using OnGone = std::function<void(AttemptId id)>;

  virtual ~AttemptLauncher() = default;
  /// Starts the attempt, or finds it where it was started before, by whichever coordinator; how
  /// long it has been at it. It is watched from then on.
  virtual Result<Nanos> begin(const AttemptOrder& order) = 0;
  /// The newest attempt of a job that any coordinator has begun; 0: none has.
  virtual Epoch newest(int64_t /*job*/) const { return Epoch(0); }
  /// What runs of attempts on this machine beside `known`, of whichever coordinator.
  virtual std::vector<Leftover> leftovers(const std::set<AttemptId>& /*known*/) { return {}; }
  /// Asks it to save a checkpoint and end. Nothing where it is over. `why`: for what it says of it.
  virtual void ask_to_stop(AttemptId id, StopWhy why) = 0;
  /// Ends it as it stands.
  virtual void kill(AttemptId id) = 0;
};

}  // namespace motley
