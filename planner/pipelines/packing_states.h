#pragma once
// Which of few devices packings use, as the states of dynamic programs.

#include <cstddef>
#include <utility>
#include <vector>

namespace motley {

class PackingStates {
 public:
  /// Of at most so many devices of each group; sets of devices that are added one by one.
  PackingStates(const std::vector<int>& most, const std::vector<std::vector<int>>& sets)
      : used_{std::vector<int>(most.size(), 0)} {
    for (size_t group = 0; group < most.size(); ++group) {
      const size_t known = used_.size();
      for (int count = 1; count <= most[group]; ++count)
        for (size_t state = 0; state < known; ++state) {
          used_.push_back(used_[state]);
          used_.back()[group] = count;
        }
      steps_.push_back(known);
    }
    for (const std::vector<int>& set : sets) add(most, set);
  }

  size_t size() const { return used_.size(); }
  /// Devices of each group; of state 0 none.
  const std::vector<int>& used(size_t state) const { return used_[state]; }
  /// States that leave room for the set, rising; what it leads to is so much further on.
  const std::vector<size_t>& room(size_t set) const { return room_[set]; }
  size_t step(size_t set) const { return step_of_set_[set]; }

 private:
  void add(const std::vector<int>& most, const std::vector<int>& set) {
    size_t step = 0;
    std::vector<size_t> room{0};
    for (size_t group = 0; group < set.size(); ++group) {
      step += steps_[group] * static_cast<size_t>(set[group]);
      if (set[group] > most[group]) room.clear();
      const size_t known = room.size();
      for (int count = 1; count <= most[group] - set[group]; ++count)
        for (size_t i = 0; i < known; ++i)
          room.push_back(room[i] + steps_[group] * static_cast<size_t>(count));
    }
    step_of_set_.push_back(step);
    room_.push_back(std::move(room));
  }

  std::vector<std::vector<int>> used_;
  std::vector<size_t> steps_;  ///< from one device of a group to the next
  std::vector<size_t> step_of_set_;
  std::vector<std::vector<size_t>> room_;
};

}  // namespace motley
