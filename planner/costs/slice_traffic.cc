#include "planner/costs/slice_traffic.h"

#include <map>
#include <set>
#include <string>

#include "core/holdings.h"

namespace motley {
namespace {

/// A rank's holdings by tensor.
using Held = std::map<std::string, Holding>;

std::vector<Held> holdings_by_rank(const Plan& plan, const ModelSpec& model) {
  std::vector<Held> held(plan.ranks.size());
  for (size_t rank = 0; rank < held.size(); ++rank) {
    const Role role = role_of(plan, Rank(static_cast<int>(rank)));
    for (Holding& holding : holdings_of(model, stage_of(plan, role), role.member)) {
      const std::string name = holding.tensor.name;
      held[rank].emplace(name, std::move(holding));
    }
  }
  return held;
}

}  // namespace

std::vector<SliceTraffic> slice_traffic(const Plan& plan, const ModelSpec& model) {
  const std::vector<Held> held = holdings_by_rank(plan, model);
  std::vector<SliceTraffic> traffic(held.size());
  std::vector<std::set<Rank>> peers(held.size());
  for (size_t rank = 0; rank < held.size(); ++rank) {
    peers[rank].insert(Rank(static_cast<int>(rank)));
    for (const auto& [name, holding] : held[rank]) traffic[rank].held += holding.slice.elements();
  }
  for (const Ownership& owned : plan.owners) {
    const auto owner = static_cast<size_t>(owned.owner.value());
    traffic[owner].owned += owned.slice.elements();
    for (size_t holder = 0; holder < held.size(); ++holder) {
      const auto copy = held[holder].find(owned.tensor);
      Slice common;
      if (holder == owner || copy == held[holder].end()) continue;
      if (!intersect(copy->second.slice, owned.slice, &common)) continue;
      const int64_t elements = common.elements();
      peers[owner].insert(Rank(static_cast<int>(holder)));
      peers[holder].insert(owned.owner);
      traffic[owner].sent += elements;  // the result
      traffic[holder].received += elements;
      if (!copy->second.counted) continue;
      traffic[holder].sent += elements;  // a gradient
      traffic[owner].received += elements;
    }
  }
  for (size_t rank = 0; rank < held.size(); ++rank)
    traffic[rank].peers = {peers[rank].begin(), peers[rank].end()};
  return traffic;
}

}  // namespace motley
