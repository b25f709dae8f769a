#include "scheduler/service/node.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/json_fields.h"
#include "core/spec/json.h"

namespace motley {

DeviceAccess Node::access() const {
  if (draining || state == NodeState::kLost) return DeviceAccess::kClosed;
  return state == NodeState::kReady ? DeviceAccess::kOpen : DeviceAccess::kAwaited;
}

const char* Node::state_name() const {
  if (state == NodeState::kLost) return "lost";
  if (draining) return "draining";
  return state == NodeState::kReady ? "ready" : "awaited";
}

std::string Node::fault() const {
  const std::string why = state == NodeState::kLost ? cause : draining ? reason : "";
  if (access() == DeviceAccess::kOpen) return "";
  return "node " + name + " is " + state_name() + (why.empty() ? "" : ": " + why);
}

StoredNode stored_of(const Node& node, Nanos now, int64_t wall_time) {
  StoredNode stored;
  stored.name = node.name;
  stored.session = node.session;
  if (!node.is_own()) stored.fleet = to_json(node.fleet).dump();
  stored.labels = nlohmann::json(node.labels).dump();
  stored.lost = node.state == NodeState::kLost;
  stored.cause = node.cause;
  stored.draining = node.draining;
  stored.reason = node.reason;
  if (node.drain_by) stored.drain_left = std::max(Nanos(0), *node.drain_by - now);
  stored.changed = wall_time;
  return stored;
}

Result<Node> node_of(const StoredNode& stored, Nanos now) {
  Node node;
  node.name = stored.name;
  node.session = stored.session;
  if (!stored.fleet.empty()) {
    MOTLEY_TRY(const nlohmann::json fleet, parse_json(stored.fleet));
    MOTLEY_TRY(node.fleet, fleet_from_json(fleet));
  }
  const auto labels = nlohmann::json::parse(stored.labels, nullptr, false);
  if (labels.is_object())
    for (const auto& [name, value] : labels.items())
      if (value.is_string()) node.labels[name] = value.get<std::string>();
  node.state = stored.lost ? NodeState::kLost : NodeState::kAwaited;
  node.cause = stored.cause;
  node.draining = stored.draining;
  node.reason = stored.reason;
  if (stored.drain_left >= Nanos(0)) node.drain_by = now + stored.drain_left;
  node.drain_kept = now;
  node.heard = now;
  return node;
}

}  // namespace motley
