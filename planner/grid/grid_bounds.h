#pragma once
// What the layers before a stage cost at least, wherever it is in its pipeline: the least path over
// all rows of stages that fit there, where devices may be had beyond those that are left at a price
// (Lagrange), and stages be longer than the least of the maxima. Whatever the prices, no plan takes
// less than those maxima and that path; the best prices say the most. By dynamic programming over
// layers, distance from the end, and the config of the next stage.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "planner/grid/grid_prices.h"
#include "planner/grid/grid_reach.h"
#include "planner/grid/grid_tables.h"

namespace motley {

class GridBounds {
 public:
  /// Of rows of stages within the windows, which must outlive this, as must the tables.
  GridBounds(const GridTables& tables, const GridWindows& windows);

  /// Of plans whose maxima are at least these.
  void find(const GridPrices& prices, const GridMaxima& least);
  const GridPrices& prices() const { return prices_; }
  /// With the seconds of the least maxima no more than any plan takes; with prices of devices alone
  /// no more than its path. Infinite where there is none.
  double path() const { return path_; }
  /// The row of stages that takes that, if it pays for devices.
  std::vector<GridStage> cheapest() const;
  /// Of what comes before layer `first`, that of a stage which is so many from the end; what is
  /// sent between them included. What that stage and those after it pay is to be added. With prices
  /// of devices alone.
  double path_before(int first, int from_end, int config) const {
    return before_[row(from_end + 1, config) + at(first)] - worth_;
  }
  int64_t states() const { return states_; }

 private:
  /// Beginnings of the last stage of rows, of one config: those than which no later one is better.
  struct Window {
    std::vector<int> firsts;
    std::vector<double> seconds;
    size_t begin = 0, end = 0;
    int next = 1;  ///< to be added
  };

  static size_t at(int number) { return static_cast<size_t>(number); }
  /// Of a distance and a config, by end.
  size_t row(int from_end, int config) const {
    return at(std::min(from_end, distances_)) * rows_ + row(config);
  }
  void find_least_ends();
  void find_rows(int from_end);
  void start_rows(int from_end);
  /// Of all layers before each end, the row's last stage of a config.
  void end_rows(int config, int begin, int last, int from_end);
  void join_rows(int end, int from_end);
  size_t row(int config) const { return at(config) * at(tables_->layers() + 1); }
  double work(int config, int first, int end) const {
    return work_[row(config) + at(end)] - work_[row(config) + at(first)];
  }
  void price_configs(const GridMaxima& least);
  double own(int config, int first, int end) const {
    return work(config, first, end) + of_config_[at(config)];
  }

  const GridTables* tables_;
  const GridWindows* windows_;
  int distances_;
  std::vector<int> least_ends_;  ///< of a stage of a distance, by that
  int64_t states_ = 0;
  GridPrices prices_;
  std::vector<double> work_;       ///< with prices, of the layers before, by config
  std::vector<double> of_config_;  ///< what a stage of it pays
  double worth_ = 0;               ///< of all resources
  double path_ = 0;
  size_t rows_ = 0;
  std::vector<double> before_;  ///< by distance, config of the next stage, and end
  /// Rows that end with a stage of a config, by that and end: which is all, and which has others
  /// before it.
  std::vector<double> alone_, after_others_;
  std::vector<double> joined_;  ///< of one end, by config of the next stage
  std::vector<Window> windows_of_configs_;
};

}  // namespace motley
