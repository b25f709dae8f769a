#pragma once
// Which gradients PowerSGD sums (comm/compression/power_sgd.h): whole matrices that cross slow
// links. What some rank holds a part of is summed as it is, and so is what one holds a copy of that
// does not count.

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "core/compression.h"
#include "core/device_islands.h"
#include "core/plan.h"

namespace motley {

struct FactoredTensor {
  std::string name;
  uint32_t number = 0;  ///< in the model
  MatrixShape matrix;
  std::vector<int> ranks;  ///< rising: who sum it, an island of GPUs by its speaker
};

/// Of a valid plan, in the model's order, the same on every rank; none where the plan compresses
/// otherwise.
std::vector<FactoredTensor> factored_tensors(const Plan& plan, const ModelSpec& model,
                                             const DeviceIslands& islands = {});

std::set<std::string> names_of(const std::vector<FactoredTensor>& tensors);

}  // namespace motley
