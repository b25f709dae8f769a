#pragma once
// What a grid costs by a foreign profile. The closed form takes the pipeline to run at the pace of
// its busiest stage, what that sends there and back included, and to be filled and drained once; a
// step ends with the slowest stage's sum of gradients (a ring over its replicas, not overlapped)
// and update. simulated_seconds() is the 1F1B schedule event by event.

#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/foreign_profile.h"
#include "core/units.h"
#include "planner/grid/grid_costs.h"

namespace motley {

/// Devices that are alike, host by host: tensor parallelism stays within one.
struct GridType {
  std::string name;  ///< of the profile's device
  Bytes memory{0};   ///< of each
  std::vector<int> on_hosts = {};

  int devices() const;
};

class ForeignCosts : public GridCosts {
 public:
  /// `profile` must outlive this; it names every type. At most `headroom` of memory stays free.
  ForeignCosts(const ForeignProfile& profile, std::vector<GridType> types, int global_batch,
               double headroom);

  int layers() const override { return static_cast<int>(profile_.layers.size()); }
  int types() const override { return static_cast<int>(types_.size()); }
  int global_batch() const override { return global_batch_; }
  std::vector<int> micro_batches() const override;
  /// Those measured, from the least on, of which each divides the next.
  std::vector<int> degrees(int type, int micro_batch) const override;
  double compute(GridConfig config, int micro_batch, int layer) const override;
  double send(int layer, int micro_batch, GridConfig from, GridConfig to) const override;
  double update(const GridStage& stage, int micro_batch) const override;
  using GridCosts::reduction;
  double reduction(const GridStage& stage, GridConfig next, int replicas) const override;
  bool reductions_rise() const override;
  int farthest_from_end(const GridStage& stage, int micro_batch, int passes) const override;
  SendWeights weights(int from_end, bool first) const override;

  const std::vector<GridType>& grid_types() const { return types_; }
  /// By number, as the search takes them.
  std::vector<GridGroups> groups() const;
  GridGroups groups_of(int type) const;
  /// Of a device of the stage: what its layers need, and each micro-batch in flight.
  double fixed_bytes(const GridStage& stage) const;
  double bytes_in_flight(const GridStage& stage, int micro_batch) const;
  /// Of a device, for them.
  double usable_bytes(int type) const;
  double simulated_seconds(const GridPlan& plan) const;
  /// At any micro-batch.
  bool is_measured(int type) const { return !device(type).profiles.empty(); }
  /// Null where neither way was measured.
  const ForeignLink* link(GridConfig from, GridConfig to) const;
  /// That gradients are summed over between devices of two types; null where nobody measured it.
  const ForeignLink* ring(int type, int next) const { return link({type, 1}, {next, 1}); }
  double gradient_bytes(const GridStage& stage, int degree) const;

 protected:
  const ForeignProfile& profile() const { return profile_; }
  const ForeignDevice& device(int type) const;
  const ForeignTimes& times(GridConfig config, int micro_batch) const;

 private:
  /// Of the layers before each, on a device of so many.
  struct Sums {
    std::vector<double> parameters, activation_bytes;
  };
  struct Times {
    const ForeignTimes* measured = nullptr;
    std::vector<double> update_seconds;  ///< of the layers before each
  };
  double simulated_seconds(const GridPlan& plan, const std::vector<GridConfig>& configs) const;
  void add_sums(int degree);
  void find_links();

  const ForeignProfile& profile_;
  std::vector<GridType> types_;
  int global_batch_;
  double headroom_;
  std::map<int, Sums> sums_;                                 ///< by degree
  std::vector<std::map<std::pair<int, int>, Times>> times_;  ///< by type, micro-batch and degree
  std::map<std::array<int, 4>, const ForeignLink*> links_;   ///< by types and degrees
};

}  // namespace motley
