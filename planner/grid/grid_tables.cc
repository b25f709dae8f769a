#include "planner/grid/grid_tables.h"

#include <algorithm>
#include <limits>

namespace motley {
namespace {

SendWeights least_of(const SendWeights& a, const SendWeights& b) {
  return {std::min(a.in_busy, b.in_busy), std::min(a.out_busy, b.out_busy),
          std::min(a.in_path, b.in_path), std::min(a.out_path, b.out_path)};
}

}  // namespace

GridTables::GridTables(const GridCosts& costs, GridShape shape,
                       const std::vector<GridGroups>& fleet, double cutoff)
    : shape_(shape),
      passes_(costs.passes(shape.micro_batch, shape.replicas)),
      layers_(costs.layers()) {
  find_configs(costs, fleet);
  find_groups(fleet);
  price_sends(costs);
  price_stages(costs, cutoff);
  least_own_[0].assign(configs_.size(), 0);
  for (const size_t maximum : {1u, 2u}) find_least_parts(maximum);
}

void GridTables::find_configs(const GridCosts& costs, const std::vector<GridGroups>& fleet) {
  for (int type = 0; type < costs.types(); ++type) {
    const GridGroups& groups = fleet[at(type)];
    int largest = 0;
    for (const int degree : costs.degrees(type, shape_.micro_batch)) {
      const auto there = groups.find(degree);
      if (there == groups.end() || there->second < shape_.replicas) continue;
      configs_.push_back({type, degree});
      largest = degree;
    }
    const int there = groups.empty() ? 0 : groups.at(1) / shape_.replicas;
    budget_.push_back(std::min(there, largest * layers_));
    resources_.push_back({type, 1, budget_.back()});
    if (largest > 0) most_stages_ += budget_.back();
  }
  most_stages_ = std::min(most_stages_, layers_);
}

/// Where the number of devices says already how many groups there are, nothing more is counted.
void GridTables::find_groups(const std::vector<GridGroups>& fleet) {
  for (int type = 0; type < static_cast<int>(budget_.size()); ++type)
    for (const auto& [group, groups] : fleet[at(type)]) {
      const int there = groups / shape_.replicas;
      if (group > 1 && there < budget_[at(type)] / group)
        resources_.push_back({type, group, there});
    }
}

void GridTables::price_stages(const GridCosts& costs, double cutoff) {
  const size_t ends = at(layers_ + 1);
  computed_.assign(configs_.size() * ends, 0);
  maxima_.assign(configs_.size() * ends * ends, {});
  farthest_.assign(configs_.size() * ends * ends, 0);
  for (int c = 0; c < configs(); ++c) {
    const GridConfig config = configs_[at(c)];
    for (int layer = 0; layer < layers_; ++layer)
      computed_[row(c) + at(layer) + 1] =
          computed_[row(c) + at(layer)] + costs.compute(config, shape_.micro_batch, layer);
    for (int first = 0; first < layers_; ++first)
      for (int end = first + 1; end <= layers_; ++end) {
        if (passes_ * compute(c, first, end) >= cutoff) break;
        const GridStage priced{first, end, config};
        const int farthest = costs.farthest_from_end(priced, shape_.micro_batch, passes_);
        farthest_[stage(c, first, end)] = std::min(farthest, most_stages_);
        if (farthest < 1) break;  // nor do more layers fit
        maxima_[stage(c, first, end)] = {least_busy(c, first, end),
                                         costs.update(priced, shape_.micro_batch),
                                         costs.reduction(priced, shape_.replicas)};
      }
  }
}

/// By how much less two layers have together than alone; 0 where nobody measured any.
double GridTables::least_own_of(size_t maximum, int config) const {
  double own = std::numeric_limits<double>::infinity();
  for (int layer = 0; layer < layers_; ++layer) {
    if (farthest_from_end(config, layer, layer + 1) < 1) continue;
    const double alone = maxima(config, layer, layer + 1)[maximum];
    own = std::min(own, alone);
    if (layer + 1 == layers_ || farthest_from_end(config, layer, layer + 2) < 1) continue;
    const double both = maxima(config, layer, layer + 2)[maximum];
    own =
        std::min(own, std::max(0.0, alone + maxima(config, layer + 1, layer + 2)[maximum] - both));
  }
  return own < kNoGridSeconds ? own : 0;
}

/// As single layers have it, scaled down to what no stage falls below.
void GridTables::find_least_parts(size_t maximum) {
  for (int config = 0; config < configs(); ++config) {
    const double own = least_own_of(maximum, config);
    std::vector<double> parts{0};
    for (int layer = 0; layer < layers_; ++layer) {
      const double alone = maxima(config, layer, layer + 1)[maximum];  // 0: not priced
      parts.push_back(parts.back() + (alone < kNoGridSeconds ? std::max(0.0, alone - own) : 0));
    }
    double scale = 1;
    for (int first = 0; first < layers_; ++first)
      for (int end = first + 1; end <= layers_ && farthest_from_end(config, first, end) > 0;
           ++end) {
        const double sum = own + parts[at(end)] - parts[at(first)];
        if (sum > 0) scale = std::min(scale, maxima(config, first, end)[maximum] / sum);
      }
    least_own_[maximum].push_back(own * scale);
    for (const double part : parts) least_of_layers_[maximum].push_back(part * scale);
  }
}

void GridTables::price_sends(const GridCosts& costs) {
  for (int layer = 0; layer < layers_; ++layer)
    for (const GridConfig from : configs_) {
      double least = std::numeric_limits<double>::infinity();
      for (const GridConfig to : configs_) {
        send_.push_back(costs.send(layer, shape_.micro_batch, from, to));
        least = std::min(least, send_.back());
      }
      least_send_.push_back(least);
    }
  weights_.assign(2 * at(layers_ + 1), {});
  for (int from_end = 1; from_end <= layers_; ++from_end)
    for (const bool first : {false, true})
      weights_[2 * at(from_end) + (first ? 1 : 0)] = costs.weights(from_end, first);
  find_unlike_distances();
  path_sends_.resize(4);  // of no stage, and the last
  for (int from_end = 2; from_end <= std::min(unlike_distances_ + 1, layers_); ++from_end)
    for (const bool first : {false, true}) path_sends_.push_back(price_path_sends(from_end, first));
  least_only_ = weights(1, true);
  least_last_ = weights(1, false);
  if (layers_ < 2) return;
  least_first_ = weights(2, true);
  least_middle_ = weights(2, false);
  for (int from_end = 3; from_end <= layers_; ++from_end) {
    least_first_ = least_of(least_first_, weights(from_end, true));
    least_middle_ = least_of(least_middle_, weights(from_end, false));
  }
}

void GridTables::find_unlike_distances() {
  const auto counted = [&](int from_end) {
    return std::array{weights(from_end - 1, false).in_path, weights(from_end, false).out_path,
                      weights(from_end, true).out_path};
  };
  for (int from_end = 2; from_end < layers_; ++from_end)
    if (counted(from_end) != counted(layers_)) unlike_distances_ = from_end;
}

std::vector<double> GridTables::price_path_sends(int from_end, bool first) const {
  const double in = weights(from_end - 1, false).in_path, out = weights(from_end, first).out_path;
  std::vector<double> sends(configs_.size() * configs_.size(), 0);
  for (int end = 1; end < layers_; ++end)
    for (int config = 0; config < configs(); ++config)
      for (int next = 0; next < configs(); ++next)
        sends.push_back(in * send(end, next, config) + out * send(end - 1, config, next));
  return sends;
}

const SendWeights& GridTables::least_weights(int first, int end) const {
  if (first == 0) return end == layers_ ? least_only_ : least_first_;
  return end == layers_ ? least_last_ : least_middle_;
}

double GridTables::most_send(int layer, int from) const {
  const double* row = &send_[(at(layer) * configs_.size() + at(from)) * configs_.size()];
  return *std::max_element(row, row + configs());
}

double GridTables::least_busy(int config, int first, int end) const {
  const SendWeights& weight = least_weights(first, end);
  return compute(config, first, end) +
         (first > 0 ? weight.in_busy * least_send(first, config) : 0) +
         (end < layers_ ? weight.out_busy * least_send(end - 1, config) : 0);
}

}  // namespace motley
