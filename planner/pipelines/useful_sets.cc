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

/// Of a replica more.
UsefulSets::Row UsefulSets::with_one_more(const Row& before, const std::vector<int>& best) const {
  Row row(states_.size(), kNone);
  for (size_t set = 0; set < count_; ++set) {
    if (best[set] == 0) continue;
    for (const size_t from : states_.room(set)) {
      int& to = row[from + states_.step(set)];
      to = std::max(to, before[from] + best[set]);
    }
  }
  return row;
}

std::vector<size_t> UsefulSets::of(const std::vector<int>& able, int replicas, int grains) const {
  const std::vector<int> best = best_of_devices(able);
  Row others(states_.size(), 0);
  for (int other = 1; other < replicas; ++other) others = with_one_more(others, best);
  std::vector<size_t> useful;
  for (size_t set = 0; set < able.size(); ++set) {
    const size_t left = states_.size() - 1 - states_.step(devices_[set]);
    if (able[set] > 0 && others[left] + able[set] >= grains) useful.push_back(set);
  }
  return useful;
}

}  // namespace motley
