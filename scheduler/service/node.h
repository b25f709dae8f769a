#pragma once
// A machine whose devices the service gives to jobs, as the coordinator knows it.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/spec/fleet_spec.h"
#include "scheduler/service/attempt_launcher.h"
#include "scheduler/service/device_gauge.h"
#include "scheduler/service/device_pools.h"
#include "scheduler/store/node_store.h"

namespace motley {

enum class NodeState : uint8_t {
  kReady,
  kAwaited,  ///< known, but not heard of yet by this coordinator, or still ending what is not to
             ///< run
  kLost,     ///< silent for too long, or its agent has ended
};

struct Node {
  std::string name;     ///< the host of its devices
  std::string session;  ///< of its agent; empty: a host of the coordinator's own fleet
  FleetSpec fleet;      ///< its devices
  std::map<std::string, std::string> labels;
  NodeState state = NodeState::kAwaited;
  std::string cause;  ///< of a loss
  bool draining = false;
  std::string reason;               ///< of the drain, in somebody's words
  std::optional<Nanos> drain_by;    ///< what still runs there then is stopped
  Nanos drain_kept{0};              ///< when it was last written how long that is
  std::vector<DeviceGauge> gauges;  ///< as its agent last said
  Nanos heard{0};                   ///< when its agent called last; of an awaited one, since when

  bool is_own() const { return session.empty(); }
  DeviceAccess access() const;
  /// "ready", "awaited", "lost", "draining"
  const char* state_name() const;
  /// Why its devices are not given, for people: "node a1 is lost: silent for 5 s"; empty: they are.
  std::string fault() const;
};

/// What an agent says when it comes.
struct NodeJoin {
  std::string name;
  std::string session;  ///< chosen by the agent at its start
  FleetSpec fleet;      ///< devices of this host alone
  std::map<std::string, std::string> labels;
};

/// A sign of life.
struct NodeReport {
  std::string name;
  std::string session;
  std::vector<AttemptId> running;  ///< attempts of which it has processes
  std::vector<DeviceGauge> gauges = {};
};

struct DrainRequest {
  std::optional<Nanos> deadline;  ///< from now; nothing: what runs there runs to its end
  std::string reason;
  std::string by = {};  ///< who asks
};

StoredNode stored_of(const Node& node, Nanos now, int64_t wall_time);
/// Awaited since `now`, unless it was lost. kCorrupt where it makes no sense.
Result<Node> node_of(const StoredNode& stored, Nanos now);

}  // namespace motley
