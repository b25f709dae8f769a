#pragma once
// With how many devices a step can be dealt within a bound on their sections, as far as a
// relaxation knows where a device may take any number of grains up to the most it computes in time.

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "planner/plain/deal.h"

namespace motley {

/// Outside of it no number of devices will do; inside almost always any.
struct DeviceRange {
  int fewest = 1;
  int most = 0;  ///< below `fewest`: none
  bool meets(int low, int high) const { return fewest <= most && fewest <= high && most >= low; }
};

class DealCapacity {
 public:
  /// `problem` outlives it.
  explicit DealCapacity(const DealProblem& problem);

  /// Within section_times[bound].
  DeviceRange within(size_t bound);
  /// The first bound from `from` on that may do for some number of devices from `low` to `high`;
  /// the end of section_times if none.
  size_t first_for(int low, int high, size_t from);
  int64_t bounds_tried() const { return static_cast<int64_t>(known_.size()); }

 private:
  DeviceRange count_whole(double limit) const;
  DeviceRange count_with_short(double limit) const;

  const DealProblem& problem_;
  std::vector<std::pair<const GrainTable*, int>> kinds_;  ///< and how many devices share each
  std::unordered_map<size_t, DeviceRange> known_;
};

}  // namespace motley
