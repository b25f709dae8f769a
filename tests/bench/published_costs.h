#pragma once
// The closed-form cost model that was published with the measurements of a public case (Sailor,
// SOSP 2025), so that plans of all planners can be compared under one judge. A stage is busy while
// it sends; memory and reductions are by its rules, which are not those of our engine.

#include <string>
#include <vector>

#include "planner/grid/foreign_costs.h"

namespace motley {

class PublishedCosts : public ForeignCosts {
 public:
  /// `profile` must outlive this; it names every type and the global batch.
  PublishedCosts(const ForeignProfile& profile, std::vector<GridType> types);

  double update(const GridStage& stage, int micro_batch) const override;
  using ForeignCosts::reduction;
  double reduction(const GridStage& stage, GridConfig next, int replicas) const override;
  int farthest_from_end(const GridStage& stage, int micro_batch, int passes) const override;
  SendWeights weights(int from_end, bool first) const override;
};

}  // namespace motley
