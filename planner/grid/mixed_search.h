#pragma once
// Grids whose stages have unlike devices in different replicas: what is left over once stages of
// one type have taken as many for every replica may still make some replicas, or stages of some. As
// in planner/grid/grid_labels.h stages are put one before the other from the last on, and labels
// that are nowhere better than another are dropped; how many replicas have which devices is part of
// a label, and devices are counted over all replicas. Of few devices all are looked at.

#include "planner/grid/grid_boxes.h"

namespace motley {

struct MixedRecord {
  /// Of all plans with unlike replicas none that is quicker than `best` takes less; 0: not all were
  /// looked at, or there are many and it is not proved that none is quicker.
  double least_seconds = 0;
  int64_t nodes = 0;
};

/// Takes the place of `best` where it is quicker. `shapes`: of which plans may be.
MixedRecord search_mixed(const GridCosts& costs, const std::vector<GridShape>& shapes,
                         const std::vector<GridGroups>& fleet, GridBest* best);

}  // namespace motley
