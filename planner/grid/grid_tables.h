#pragma once
// The prices of every stage of one shape of grid (micro-batch and number of replicas), looked up
// instead of computed.

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "planner/grid/grid_costs.h"

namespace motley {

struct GridShape {
  int micro_batch = 0;
  int replicas = 0;
};

/// Of which a step counts only the greatest of all stages: what it is busy with, its update, its
/// reduction.
using GridMaxima = std::array<double, 3>;

class GridTables {
 public:
  /// `fleet` by type. Stages that alone take a step to `cutoff` seconds are not priced.
  GridTables(const GridCosts& costs, GridShape shape, const std::vector<GridGroups>& fleet,
             double cutoff);

  GridShape shape() const { return shape_; }
  int passes() const { return passes_; }
  int layers() const { return layers_; }
  int configs() const { return static_cast<int>(configs_.size()); }
  GridConfig config(int number) const { return configs_[at(number)]; }
  /// Devices of each type that one replica may have; no more than its layers could use.
  const std::vector<int>& budget() const { return budget_; }
  /// What stages take of what there is for one replica: devices of each type, by number, then
  /// groups of several of them where hosts have odd devices, which make none.
  struct Resource {
    int type = 0;
    int group = 1;
    int there = 0;

    int taken_by(GridConfig config) const {
      return config.type == type && config.degree % group == 0 ? config.degree / group : 0;
    }
  };
  const std::vector<Resource>& resources() const { return resources_; }
  /// No row of stages is longer.
  int most_stages() const { return most_stages_; }

  double compute(int config, int first, int end) const {
    return computed_[row(config) + at(end)] - computed_[row(config) + at(first)];
  }
  /// The first with the best neighbours.
  const GridMaxima& maxima(int config, int first, int end) const {
    return maxima_[stage(config, first, end)];
  }
  /// What a stage has of a maximum at least: a part that is its config's, and one for each of its
  /// layers, here of all before `end`.
  double least_own(size_t maximum, int config) const { return least_own_[maximum][at(config)]; }
  double least_of_layers(size_t maximum, int config, int end) const {
    return (maximum == 0 ? computed_ : least_of_layers_[maximum])[row(config) + at(end)];
  }
  double least_part(size_t maximum, int config, int first, int end) const {
    return least_own(maximum, config) + least_of_layers(maximum, config, end) -
           least_of_layers(maximum, config, first);
  }
  /// How often each counts.
  GridMaxima counts() const { return {static_cast<double>(passes_ - 1), 1, 1}; }
  /// 0: no stage of a plan within the cutoff.
  int farthest_from_end(int config, int first, int end) const {
    return farthest_[stage(config, first, end)];
  }
  /// The output of a layer between devices of two configs.
  double send(int layer, int from, int to) const {
    return send_[(at(layer) * configs_.size() + at(from)) * configs_.size() + at(to)];
  }
  SendWeights weights(int from_end, bool first) const {
    return weights_[2 * at(from_end) + (first ? 1 : 0)];
  }
  /// What is sent on the way between the stage that is so many from the end, the first of all or
  /// not, and the one after it, by end of the first and both configs.
  const std::vector<double>& path_sends(int from_end, bool first) const {
    return path_sends_[2 * at(std::min(from_end, unlike_distances_ + 1)) + (first ? 1 : 0)];
  }
  /// Beyond so many from the end what is sent counts alike.
  int unlike_distances() const { return unlike_distances_; }
  /// The least and the most that send() may take, over the configs it may be to.
  double least_send(int layer, int from) const {
    return least_send_[at(layer) * configs_.size() + at(from)];
  }
  double most_send(int layer, int from) const;

 private:
  static size_t at(int number) { return static_cast<size_t>(number); }
  size_t row(int config) const { return at(config) * at(layers_ + 1); }
  size_t stage(int config, int first, int end) const {
    return (row(config) + at(first)) * at(layers_ + 1) + at(end);
  }
  void find_configs(const GridCosts& costs, const std::vector<GridGroups>& fleet);
  void find_groups(const std::vector<GridGroups>& fleet);
  void price_sends(const GridCosts& costs);
  void find_unlike_distances();
  std::vector<double> price_path_sends(int from_end, bool first) const;
  void price_stages(const GridCosts& costs, double cutoff);
  void find_least_parts(size_t maximum);
  double least_own_of(size_t maximum, int config) const;
  const SendWeights& least_weights(int first, int end) const;
  double least_busy(int config, int first, int end) const;

  GridShape shape_;
  int passes_ = 0;
  int layers_ = 0;
  int most_stages_ = 0;
  int unlike_distances_ = 1;
  std::vector<GridConfig> configs_;
  std::vector<int> budget_;
  std::vector<Resource> resources_;
  std::vector<double> computed_;  ///< of the layers before, by config
  std::vector<GridMaxima> maxima_;
  std::vector<int> farthest_;
  /// By maximum; what layers have of the first is computed_.
  std::array<std::vector<double>, 3> least_own_, least_of_layers_;
  std::vector<double> send_, least_send_;
  std::vector<std::vector<double>> path_sends_;
  std::vector<SendWeights> weights_;  ///< by distance from the end, not first and first
  SendWeights least_first_, least_middle_, least_last_, least_only_;
};

}  // namespace motley
