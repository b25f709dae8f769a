#pragma once
// The best grid of one shape: stages are put one before the other from the last on, so that how
// many micro-batches each has in flight is known. What is known of a row of stages is a label; of
// labels that begin with the same layer and config, one that is nowhere better than another is
// dropped (Pareto dominance), as is one that by its bound cannot beat the cutoff. Seconds of the
// path and of maxima may stand for each other in that, as a step is the sum of both.

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "planner/grid/grid_bounds.h"

namespace motley {

/// Types of devices, and sizes of groups of them.
constexpr size_t kMostGridResources = 16;

struct GridFound {
  std::optional<GridPlan> plan;  ///< the quickest in less than the cutoff
  double seconds = std::numeric_limits<double>::infinity();  ///< of its step
  /// No plan of the shape with stages as the bounds allow takes less, if it takes less than the
  /// cutoff.
  double least_seconds = std::numeric_limits<double>::infinity();
  int64_t labels = 0;
  int64_t compared = 0;  ///< pairs of labels: what takes the time
};

/// What bounds plans of the shape.
struct GridKnown {
  const GridTables& tables;
  const GridWindows& windows;
  const GridReach& reach;
  const GridBounds& bounds;
};

/// Of plans whose greatest stages have at least `least`. `most_labels` that begin with the same
/// layer are gone on with, those with the least bounds.
GridFound best_grid(const GridKnown& known, const GridMaxima& least, double cutoff,
                    size_t most_labels);

}  // namespace motley
