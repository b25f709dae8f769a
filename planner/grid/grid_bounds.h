#pragma once
// What the layers before a stage cost at least, given the devices that are left for them: each
// stage with the best neighbours, and max, sum and reduction each for itself. By dynamic
// programming over layers and devices left.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "planner/grid/grid_tables.h"

namespace motley {

class GridBounds {
 public:
  /// Of plans in less than `cutoff` seconds only; those with stages that no such plan has are not
  /// looked at.
  GridBounds(const GridTables& tables, double cutoff);

  /// Numbers of devices that are left, as one index: sum of count[t] * stride(t). The strides are 0
  /// where there are too many to tell them apart.
  int64_t stride(int type) const { return strides_[static_cast<size_t>(type)]; }
  int64_t all() const { return sizes_ - 1; }

  /// Layers [0, end) on what is left; infinite where they do not fit. 0 where end is 0.
  double busiest(int end, int64_t left) const { return busiest_[index(end, left)]; }
  double path(int end, int64_t left) const { return path_[index(end, left)]; }
  double reduction(int end, int64_t left) const { return reduction_[index(end, left)]; }
  double least_update() const { return least_update_; }
  /// Whether a plan in less than the cutoff may have the stage.
  bool allowed(int config, int first, int end) const {
    return allowed_[stage(config, first, end)] != 0;
  }
  /// No plan takes less; infinite where none is possible within the cutoff.
  double least_seconds() const;

 private:
  size_t index(int end, int64_t left) const { return static_cast<size_t>(end * sizes_ + left); }
  size_t stage(int config, int first, int end) const {
    const auto ends = static_cast<size_t>(tables_->layers() + 1);
    return (static_cast<size_t>(config) * ends + static_cast<size_t>(first)) * ends +
           static_cast<size_t>(end);
  }
  /// By the layers alone, whatever devices are left; and how fast devices can be all in all.
  bool ruled_out(double cutoff);
  double fluid_busiest() const;
  bool forbid(double cutoff, double busiest, double path, double reduction);
  void find();
  void extend(int config, int first, int end);

  const GridTables* tables_;
  std::vector<int64_t> strides_;
  int64_t sizes_ = 1;
  std::vector<double> busiest_, path_, reduction_;
  std::vector<char> allowed_;
  double least_update_ = 0;
  std::vector<double> least_work_;  ///< device-seconds of all layers, by type
};

}  // namespace motley
