#pragma once
// Rows of stages of which devices share some.

#include <optional>
#include <vector>

#include "planner/pipelines/pipeline_costs.h"

namespace motley {

/// Stages by the numbers of groups and tensor sets that compute them.
using StageRow = std::vector<int>;

struct RowsWanted {
  bool only_shared = false;   ///< no device has a stage by itself
  std::optional<int> stages;  ///< unset: of any number
};

struct SharedRows {
  std::vector<StageRow> rows;
  bool all = true;
};

/// On exactly these devices, so many of each group, with a tensor set at least; of more than `most`
/// some with each set, and some of each way to divide the devices into stages.
SharedRows shared_rows(const PipelineCosts& costs, const std::vector<int>& devices,
                       const RowsWanted& wanted, size_t most);

/// The row with a tensor set in place of what stages its devices had by themselves, where the first
/// was: by each set that fits in.
std::vector<StageRow> rows_sharing_more(const PipelineCosts& costs, const StageRow& row,
                                        const RowsWanted& wanted);

/// These, and the row with the shares of one of its tensor sets changed.
std::vector<StageRow> rows_sharing_unlike(const PipelineCosts& costs, const StageRow& row,
                                          const RowsWanted& wanted);

}  // namespace motley
