#pragma once
// Packings no replica of which goes over several hosts: what each host may compute with so many
// replicas by dynamic programming over its devices, and replicas to the hosts that gain most by
// them.

#include <cstdint>
#include <vector>

#include "planner/pipelines/packing_states.h"

namespace motley {

class HostPacking {
 public:
  /// Devices of each group by host, and by set of devices that could be a replica.
  HostPacking(const std::vector<std::vector<int>>& hosts,
              const std::vector<std::vector<int>>& sets);

  /// Sets worth `enough` together, at most so many, host by host in their order; none where none
  /// are found. `worth`: of each set.
  std::vector<size_t> pack(const std::vector<int>& worth, int64_t enough, int most) const;

 private:
  /// Hosts with the same devices.
  struct Shape {
    std::vector<int> devices;
    PackingStates states;
    std::vector<size_t> hosts;
  };
  /// What a host computes at best, and by which replicas.
  struct Best {
    int64_t worth = 0;
    std::vector<size_t> sets;
  };
  /// The last replica of a packing, and what the others used.
  struct State {
    int64_t worth = -1;  ///< of all; below 0: there is no such packing
    size_t set = 0, before = 0;
  };
  using Row = std::vector<State>;

  static Row one_more(const Shape& shape, const std::vector<int>& worth, const Row& before);
  static std::vector<Best> best_of(const Shape& shape, const std::vector<int>& worth, int most);

  std::vector<Shape> shapes_;
  size_t hosts_;
};

}  // namespace motley
