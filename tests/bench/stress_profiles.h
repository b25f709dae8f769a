#pragma once
// Foreign profiles made up from a seed, for `run.sh planner --stress`: models and types of devices
// that nobody measured, as unlike each other as real ones are.

#include <vector>

#include "core/foreign_profile.h"

namespace motley {

struct StressProfile {
  int layers = 0;  ///< embedding and head included
  int types = 0;
  /// Times and sizes of a layer are its own, else all between embedding and head are alike.
  bool uneven = false;
  /// Activations so large that how many micro-batches are in flight decides where stages may be.
  bool tight = false;
  /// Updates, times by micro-batch and degree, and links follow no rule; uneven, too.
  bool odd = false;
};

/// Types are named card-0, card-1, …, the quickest first.
ForeignProfile stress_profile(const StressProfile& wanted);

}  // namespace motley
