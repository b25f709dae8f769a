#pragma once
// Nodes that agents have registered, and what was decided of them, as the coordinator's memory
// keeps them (job_store.h).

#include <string>
#include <vector>

#include "core/ids.h"
#include "core/result.h"
#include "scheduler/store/database.h"

namespace motley {

struct StoredNode {
  std::string name;
  std::string session = {};  ///< of its agent; empty: a host of the coordinator's own fleet
  std::string fleet = {};    ///< fleet.json of its devices; empty for such a host
  std::string labels = {};   ///< a JSON object of strings
  bool lost = false;
  std::string cause = {};  ///< of the loss
  bool draining = false;
  std::string reason = {};  ///< of the drain
  Nanos drain_left{-1};     ///< until what runs there is stopped, when this was written; -1: never
  int64_t changed = 0;      ///< wall time, in nanoseconds since 1970
  bool operator==(const StoredNode&) const = default;
};

/// Replaces what was kept of the node.
Result<Unit> save_node(const Database& database, const StoredNode& node);
/// Nothing where it is not kept.
Result<Unit> remove_node(const Database& database, const std::string& name);
/// By name.
Result<std::vector<StoredNode>> list_nodes(const Database& database);

}  // namespace motley
