#pragma once
// What the layers before a stage cost at least, wherever it is in its pipeline: the least path over
// all rows of stages that fit there, where devices may be had beyond those that are left at a price
// (Lagrange). Whatever the prices, no plan has a shorter path; the best prices say the most. By
// dynamic programming over layers, distance from the end, and the config of the next stage.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "planner/grid/grid_reach.h"
#include "planner/grid/grid_tables.h"

namespace motley {

class GridBounds {
 public:
  /// Of rows of stages within the windows, which must outlive this, as must the tables.
  GridBounds(const GridTables& tables, const GridWindows& windows);

  /// With one price for each resource, by number.
  void find(const std::vector<double>& prices);
  const std::vector<double>& prices() const { return prices_; }
  /// Seconds of the path of any plan, at least; infinite where there is none.
  double path() const { return path_; }
  /// The row of stages that takes that, if it pays for devices.
  std::vector<GridStage> cheapest() const;
  /// Of what comes before layer `first`, that of a stage which is so many from the end; what is
  /// sent between them included. What that stage and those after it pay is to be added.
  double path_before(int first, int from_end, int config) const {
    return before_[state(first, from_end + 1, config)] - worth_;
  }
  int64_t states() const { return static_cast<int64_t>(before_.size()); }

 private:
  /// Beginnings of the last stage of rows, of one config: those than which no later one is better.
  struct Window {
    std::vector<int> firsts;
    std::vector<double> seconds;
    size_t begin = 0, end = 0;

    void add(int first, double value);
  };

  static size_t at(int number) { return static_cast<size_t>(number); }
  size_t state(int end, int from_end, int config) const {
    return (at(std::min(from_end, distances_)) * at(tables_->layers() + 1) + at(end)) *
               at(tables_->configs()) +
           at(config);
  }
  void price_sends(int from_end);
  void find_rows(int from_end);
  /// Of all layers before `end`, the row's last stage of a config.
  void end_rows(int config, int end, int from_end);
  void join_rows(int end, int from_end);
  double own(int config, int first, int end) const {
    return tables_->compute(config, first, end) + of_config_[at(config)];
  }

  const GridTables* tables_;
  const GridWindows* windows_;
  int distances_;
  std::vector<double> prices_;
  std::vector<double> of_config_;  ///< what a stage of it pays
  double worth_ = 0;               ///< of all resources
  double path_ = 0;
  std::vector<double> before_;  ///< by distance, end and config of the next stage
  /// Rows that end with a stage of a config: which is all, and which has others before it.
  std::vector<double> alone_, after_others_;
  std::vector<Window> windows_of_configs_;
  /// Of what is sent between two stages, by end of the first and both configs; after a stage that
  /// is the first of all, and others.
  std::vector<double> sends_alone_, sends_;
};

}  // namespace motley
