#pragma once
// Which sets of few devices packings may be made of, before what each is able to do is known well.

#include <vector>

#include "planner/pipelines/packing_states.h"
#include "planner/pipelines/replica_designs.h"

namespace motley {

class UsefulSets {
 public:
  /// Of these devices; `sets`: the devices of each, several times where it is cut into different
  /// numbers of stages.
  UsefulSets(const GroupCounts& there, const std::vector<GroupCounts>& sets);

  /// Those that may be among `replicas` which compute so many grains together, if each computes no
  /// more than it is able to; rising.
  std::vector<size_t> of(const std::vector<int>& able, int replicas, int grains) const;

 private:
  using Row = std::vector<int>;  ///< the most grains of at most these devices, by state
  static constexpr int kNone = -1'000'000'000;
  std::vector<int> best_of_devices(const std::vector<int>& able) const;
  Row with_one_more(const Row& before, const std::vector<int>& best) const;

  std::vector<size_t> devices_;  ///< of each set, by number
  PackingStates states_;         ///< of devices, by number
  size_t count_ = 0;
};

}  // namespace motley
