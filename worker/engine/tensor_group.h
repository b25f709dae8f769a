#pragma once
// What the ranks that share a stage's layers do together in the middle of a program.

#include <cstddef>
#include <span>

#include "core/result.h"

namespace motley {

class TensorGroup {
 public:
  virtual ~TensorGroup() = default;

  /// data[i] = Σ over the group's ranks, identical bits on all. `flops`: work done since the last
  /// call, or since the program began.
  virtual Result<Unit> sum(std::span<float> data, double flops) = 0;
  virtual Result<Unit> sum(std::span<double> data, double flops) = 0;
};

}  // namespace motley
