#pragma once
// The closed-form cost model that was published with the measurements of a public case (Sailor,
// SOSP 2025), so that plans of all planners can be compared under one judge. A stage is busy while
// it sends; memory and reductions are by its rules, which are not those of our engine.

#include <string>
#include <vector>

#include "core/foreign_profile.h"
#include "planner/grid_costs.h"

namespace motley {

class PublishedCosts : public GridCosts {
 public:
  /// `profile` must outlive this. `types` are names of its devices.
  PublishedCosts(const ForeignProfile& profile, std::vector<std::string> types);

  int layers() const override { return static_cast<int>(profile_.layers.size()); }
  int types() const override { return static_cast<int>(types_.size()); }
  int global_batch() const override { return profile_.global_batch; }
  std::vector<int> micro_batches() const override;
  std::vector<int> degrees(int type, int micro_batch) const override;
  double compute(GridConfig config, int micro_batch, int layer) const override;
  double send(int layer, int micro_batch, GridConfig from, GridConfig to) const override;
  double update(const GridStage& stage, int micro_batch) const override;
  double reduction(const GridStage& stage, int replicas) const override;
  int farthest_from_end(const GridStage& stage, int micro_batch, int passes) const override;
  SendWeights weights(int from_end, bool first) const override;

 private:
  const ForeignDevice& device(int type) const;
  const ForeignTimes& times(GridConfig config, int micro_batch) const;

  const ForeignProfile& profile_;
  std::vector<std::string> types_;
};

}  // namespace motley
