#pragma once
// All grids of one shape by their greatest stages: a box holds the plans whose three maxima lie
// between two of each. A box is bounded (planner/grid/grid_bounds.h), dropped where that is no
// quicker than the best plan known, else halved or, where it is small, searched label by label
// (planner/grid/grid_labels.h).

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/grid/grid_prices.h"
#include "planner/grid/grid_tables.h"

namespace motley {

struct GridBox {
  GridMaxima least = {};
  GridMaxima most = {};
  double least_seconds = 0;             ///< no plan of it takes less
  double least_path = 0;                ///< nor has any a shorter path
  GridPrices prices = {};               ///< by which the first was found
  std::vector<double> of_devices = {};  ///< by which the second was
  int distances = 0;  ///< told apart in that; 0: it is of the larger box which this is a part of
};

/// The best plan of all so far.
struct GridBest {
  std::optional<GridPlan> plan;
  double seconds = kNoGridSeconds;
};

struct GridEffort {
  double width = 0;         ///< of a step, within which boxes are searched by labels
  int distances = 0;        ///< of stages from the end, that are told apart
  int64_t most_states = 0;  ///< of GridReach
  size_t most_labels = 0;   ///< that begin with the same layer
  bool may_stop = false;    ///< once these were too few for most boxes
};

/// What was done, in states bounded and pairs of labels compared.
struct GridWork {
  int64_t spent = 0;
  int64_t most = 0;

  bool over() const { return spent >= most; }
};

/// The box of all plans, in `least_seconds` at least.
GridBox whole_box(const GridTables& tables, double least_seconds, double least_busy);

/// Leaves of `boxes` those in which a plan quicker than the best may still be.
void search_boxes(const GridCosts& costs, const GridTables& tables, const GridEffort& effort,
                  std::vector<GridBox>* boxes, GridBest* best, GridWork* work);

}  // namespace motley
