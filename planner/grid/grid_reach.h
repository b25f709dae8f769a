#pragma once
// Which stages plans may have whose greatest ones are bounded, and how many layers devices that are
// left can hold of such.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "planner/grid/grid_tables.h"

namespace motley {

/// The stages of a config that end with a layer begin in a window, which slides as the end does. It
/// may hold stages that may not be: bounds stay true with them. The farther from the end, the
/// narrower the windows, until from some distance on nothing changes any more, or is not told
/// apart.
class GridWindows {
 public:
  GridWindows(const GridTables& tables, const GridMaxima& most, int most_distances);

  const GridMaxima& most() const { return most_; }
  bool allowed(int config, int first, int end) const {
    return within(tables_->maxima(config, first, end));
  }
  /// Distances from the end that differ.
  int distances() const { return distances_; }
  /// No stage that is so many from the end begins before.
  int first_of(int config, int end, int from_end) const { return firsts_of(config, from_end)[end]; }
  /// The same by end.
  const int16_t* firsts_of(int config, int from_end) const {
    return &firsts_[static_cast<size_t>(std::min(from_end, distances_) - 1) * rows_ +
                    row(config, 0)];
  }

 private:
  size_t row(int config, int end) const {
    return static_cast<size_t>(config * (tables_->layers() + 1) + end);
  }
  bool within(const GridMaxima& maxima) const {
    return maxima[0] <= most_[0] && maxima[1] <= most_[1] && maxima[2] <= most_[2];
  }
  std::vector<int16_t> lowest() const;
  std::vector<int16_t> narrowed(const std::vector<int16_t>& lowest, int from_end) const;

  const GridTables* tables_;
  GridMaxima most_;
  size_t rows_;
  int distances_ = 0;
  std::vector<int16_t> firsts_;  ///< by distance, config and end
};

/// By dynamic programming over the numbers of devices left and the distance from the end: of stages
/// that only have to be short enough, each is best as long as may be.
class GridReach {
 public:
  GridReach(const GridTables& tables, const GridWindows& windows, int64_t most_states);
  /// What there is to find.
  static int64_t states_of(const GridTables& tables, const GridWindows& windows);

  /// Numbers of devices, as one index: the sum of count[type] * stride(type). All 0 where there are
  /// more states than `most_states`, and nothing is known.
  int64_t stride(int type) const { return strides_[static_cast<size_t>(type)]; }
  int64_t all() const { return sizes_ - 1; }
  /// So many of the first layers may be before a stage so many from the end.
  int before(int from_end, int64_t left) const {
    return reach_[static_cast<size_t>(std::min(from_end, distances_ - 1) * sizes_ + left)];
  }
  int64_t states() const { return static_cast<int64_t>(reach_.size()); }

 private:
  static std::vector<int16_t> ends_of(const GridTables& tables, const GridWindows& windows,
                                      int config, int from_end);
  void find(const GridTables& tables, const GridWindows& windows, int from_end);
  void find_before_farther(const GridTables& tables, const std::vector<std::vector<int16_t>>& ends,
                           int from_end);
  void find_before_same(const GridTables& tables, const std::vector<std::vector<int16_t>>& ends);

  int distances_ = 1;
  std::vector<int64_t> strides_;
  int64_t sizes_ = 1;
  std::vector<int16_t> reach_;
};

}  // namespace motley
