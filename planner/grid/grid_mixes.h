#pragma once
// Stages whose replicas have unlike devices: which configs may stand beside each other, what they
// take of the fleet, and what a step counts of such a stage. Each time is that of the slowest
// replica.

#include <utility>
#include <vector>

#include "planner/grid/grid_tables.h"

namespace motley {

/// Of so many replicas all orders are looked at where that matters.
inline constexpr int kFewInOrder = 6;

/// The devices of a stage in all replicas.
struct GridMix {
  std::vector<std::pair<int, int>> parts;  ///< configs, rising, and the replicas of each
  std::vector<int> taken;                  ///< by resource
};

/// What two stages one after the other send each other, by the slowest replica.
struct GridSends {
  double out = 0;  ///< of the former, to the latter
  double in = 0;   ///< of the latter, to the former
};

/// Of a stage; seconds of the slowest replica.
struct GridMixPrice {
  double compute = 0, update = 0;
  /// The least over all orders of the replicas, by pairs of neighbours that there are anyhow.
  double reduction = 0;
  int farthest_from_end = 0;
};

struct GridMixLimits {
  size_t most_parts = 0;
  int most_counts = 0;  ///< of replicas with a config, about evenly apart
  size_t most_mixes = 0;
};

class GridMixes {
 public:
  /// `fleet` by type. `costs` must outlive this.
  GridMixes(const GridCosts& costs, GridShape shape, const std::vector<GridGroups>& fleet);

  /// No plan of the shape takes less.
  double least_seconds() const;
  /// There is none before.
  void find(const GridMixLimits& limits);
  const std::vector<GridMix>& all() const { return all_; }
  /// Whether there are no others of these devices.
  bool complete() const { return complete_; }
  GridConfig config(int number) const { return configs_[at(number)]; }
  GridShape shape() const { return shape_; }
  int passes() const { return passes_; }
  int layers() const { return layers_; }
  /// Of what there is: devices by type, then groups of several that hosts have.
  size_t resources() const { return there_.size(); }
  int there(size_t resource) const { return there_[resource].count; }

  GridMixPrice price(const GridMix& mix, int first, int end) const;
  /// Of a micro-batch on one config.
  double compute(int config, int first, int end) const {
    return computed_[at(config)][at(end)] - computed_[at(config)][at(first)];
  }
  SendWeights weights(int from_end, bool first) const { return costs_.weights(from_end, first); }
  /// Of stages of which the latter begins with `layer`, of each way to put their devices together
  /// in replicas than which no other has less of both.
  std::vector<GridSends> sends(const GridMix& before, const GridMix& after, int layer) const;
  /// Replicas by part of `before` and of `after` that send no more than these.
  std::vector<std::vector<int>> put_together(const GridMix& before, const GridMix& after, int layer,
                                             const GridSends& most) const;

  /// Seconds of the layers before `first` on the way of a micro-batch, at least.
  double least_path(int first) const { return least_path_[at(first)]; }
  /// What some stage is busy for at least that has some of these layers, where so much is taken.
  template <class Taken>
  double least_busy(int first, const Taken& taken) const {
    double speed = 0;  // of what is left
    for (size_t type = 0; type < least_work_.size(); ++type)
      if (least_work_[type] < kNoGridSeconds)
        speed += (there_[type].count - taken[type]) / least_work_[type];
    return speed > 0 ? shape_.replicas * work_[at(first)] / speed : kNoGridSeconds;
  }

 private:
  struct Resource {
    int type = 0, group = 1, count = 0;
    int taken_by(GridConfig config) const {
      return config.type == type && config.degree % group == 0 ? config.degree / group : 0;
    }
  };

  static size_t at(int number) { return static_cast<size_t>(number); }
  size_t stage(int first, int end) const { return at(first) * at(layers_ + 1) + at(end); }
  void find_resources(const std::vector<GridGroups>& fleet);
  void find_configs(const std::vector<GridGroups>& fleet);
  void price_stages();
  void price_sends();
  void find_least();
  void extend(const GridMixLimits& limits, int config, int replicas, GridMix* mix);
  bool can_take(int config, const GridMix& mix) const;
  double reduction(const GridMix& mix, int first, int end) const;
  double send(int layer, int from, int to) const {
    return sends_[(at(layer) * configs_.size() + at(from)) * configs_.size() + at(to)];
  }

  const GridCosts& costs_;
  GridShape shape_;
  int passes_, layers_;
  bool complete_ = true;
  std::vector<Resource> there_;
  std::vector<GridConfig> configs_;
  std::vector<GridMix> all_;
  std::vector<std::vector<double>> computed_;  ///< by config, of the layers before
  std::vector<std::vector<double>> updates_;   ///< by config and stage
  std::vector<std::vector<int>> farthest_;     ///< the same
  std::vector<double> least_path_, work_;      ///< of the layers before
  std::vector<double> least_work_;             ///< by type, device-seconds for all layers
  std::vector<double> sends_;                  ///< by layer and both configs
};

}  // namespace motley
