#include "planner/pipelines/useful_sets.h"

#include <algorithm>

namespace motley {
namespace {

std::vector<GroupCounts> each_once(std::vector<GroupCounts> sets) {
  std::sort(sets.begin(), sets.end());
  sets.erase(std::unique(sets.begin(), sets.end()), sets.end());
  return sets;
}

}  // namespace

UsefulSets::UsefulSets(const GroupCounts& there, const std::vector<GroupCounts>& sets)
    : states_(there, each_once(sets)) {
  const std::vector<GroupCounts> once = each_once(sets);
  count_ = once.size();
  for (const GroupCounts& set : sets)
    devices_.push_back(
        static_cast<size_t>(std::lower_bound(once.begin(), once.end(), set) - once.begin()));
}

std::vector<int> UsefulSets::best_of_devices(const std::vector<int>& able) const {
  std::vector<int> best(count_, 0);
  for (size_t set = 0; set < able.size(); ++set)
    best[devices_[set]] = std::max(best[devices_[set]], able[set]);
  return best;
}

/// Row r: of so many replicas.
std::vector<UsefulSets::Row> UsefulSets::rows(const std::vector<int>& best, int replicas) const {
  std::vector<Row> rows{Row(states_.size(), 0)};
  for (int replica = 0; replica < replicas; ++replica) {
    const Row& before = rows.back();
    Row row(states_.size(), kNone);
    for (size_t set = 0; set < count_; ++set) {
      if (best[set] == 0) continue;
      for (const size_t from : states_.room(set)) {
        int& to = row[from + states_.step(set)];
        to = std::max(to, before[from] + best[set]);
      }
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

/// The best of others beside each, of the devices that it leaves.
std::vector<size_t> UsefulSets::of(const std::vector<int>& able, int replicas, int grains) const {
  const std::vector<int> best = best_of_devices(able);
  const std::vector<Row> rows = this->rows(best, replicas);
  std::vector<size_t> useful;
  if (rows.back().back() < grains) return useful;
  std::vector<int> beside(count_, kNone);
  for (size_t set = 0; set < count_; ++set) {
    if (best[set] == 0) continue;
    for (int before = 0; before < replicas; ++before) {
      const Row& one = rows[static_cast<size_t>(before)];
      const Row& other = rows[static_cast<size_t>(replicas - 1 - before)];
      const size_t left = states_.size() - 1 - states_.step(set);
      for (const size_t used : states_.room(set))
        beside[set] = std::max(beside[set], one[used] + other[left - used]);
    }
  }
  for (size_t set = 0; set < able.size(); ++set)
    if (able[set] > 0 && beside[devices_[set]] + able[set] >= grains) useful.push_back(set);
  return useful;
}

}  // namespace motley
