#pragma once
// Rows of stages of which devices share some.

#include <vector>

#include "planner/pipelines/pipeline_costs.h"

namespace motley {

/// Stages by the numbers of groups and tensor sets that compute them.
using StageRow = std::vector<int>;

struct SharedRows {
  std::vector<StageRow> rows;
  bool all = true;
};

/// On exactly these devices, so many of each group, with a tensor set at least and, unless
/// `only_shared`, devices by themselves; of more than `most` some with each set.
SharedRows shared_rows(const PipelineCosts& costs, const std::vector<int>& devices,
                       bool only_shared, size_t most);

/// The row with a tensor set in place of what stages its devices had by themselves, where the first
/// was: by each set that fits in.
std::vector<StageRow> rows_sharing_more(const PipelineCosts& costs, const StageRow& row);

/// The row with the shares of one of its tensor sets changed.
std::vector<StageRow> rows_sharing_otherwise(const PipelineCosts& costs, const StageRow& row);

}  // namespace motley
