#include "planner/grid/grid_bounds.h"

#include <algorithm>

#include "planner/plain/grain_table.h"

namespace motley {
namespace {

/// How often stages are forbidden by what the last round has shown.
constexpr int kRounds = 4;
/// Beyond so many, layers are not bounded by what devices are left.
constexpr int64_t kMostCells = 4'000'000;

}  // namespace

GridBounds::GridBounds(const GridTables& tables, double cutoff) : tables_(&tables) {
  int64_t cells = tables.layers() + 1;
  for (const int there : tables.budget()) cells *= there + 1;
  for (const int there : tables.budget()) {
    strides_.push_back(cells <= kMostCells ? sizes_ : 0);
    if (cells <= kMostCells) sizes_ *= there + 1;
  }
  const int layers = tables.layers();
  const auto ends = static_cast<size_t>(layers + 1);
  allowed_.assign(static_cast<size_t>(tables.configs()) * ends * ends, 0);
  least_update_ = kNever;
  least_work_.assign(tables.budget().size(), kNever);
  for (int config = 0; config < tables.configs(); ++config) {
    double& least = least_work_[static_cast<size_t>(tables.config(config).type)];
    least = std::min(least, tables.compute(config, 0, layers) * tables.config(config).degree);
  }
  for (int config = 0; config < tables.configs(); ++config)
    for (int first = 0; first < layers; ++first)
      for (int end = first + 1; end <= layers; ++end) {
        if (tables.farthest_from_end(config, first, end) < (end < layers ? 2 : 1)) continue;
        allowed_[stage(config, first, end)] = 1;
        least_update_ = std::min(least_update_, tables.update(config, first, end));
      }
  for (int round = 0; round < kRounds; ++round) {
    if (ruled_out(cutoff)) {
      sizes_ = 0;
      return;
    }
  }
  const int64_t all_left = all();
  for (int round = 0; round < kRounds; ++round) {
    find();
    if (!forbid(cutoff, busiest(layers, all_left), path(layers, all_left),
                reduction(layers, all_left)))
      break;
  }
}

void GridBounds::find() {
  const auto cells = static_cast<size_t>(sizes_) * static_cast<size_t>(tables_->layers() + 1);
  busiest_.assign(cells, kNever);
  path_.assign(cells, kNever);
  reduction_.assign(cells, kNever);
  for (std::vector<double>* table : {&busiest_, &path_, &reduction_})
    std::fill_n(table->begin(), sizes_, 0.0);
  for (int end = 1; end <= tables_->layers(); ++end)
    for (int config = 0; config < tables_->configs(); ++config)
      for (int first = 0; first < end; ++first)
        if (allowed(config, first, end)) extend(config, first, end);
}

/// Over all numbers of devices left of which the stage takes its own: runs of consecutive indices,
/// as types before its own vary fastest.
void GridBounds::extend(int config, int first, int end) {
  const GridConfig own = tables_->config(config);
  const double busy = tables_->least_busy(config, first, end);
  const double path = tables_->least_path(config, first, end);
  const double reduction = tables_->reduction(config, first, end);
  const int64_t step = stride(own.type);
  const int64_t whole =
      std::max<int64_t>(1, step * (tables_->budget()[static_cast<size_t>(own.type)] + 1));
  const int64_t taken = step * own.degree;
  for (int64_t begin = 0; begin < sizes_; begin += whole) {
    const size_t to = index(end, begin + taken), from = index(first, begin);
    const auto count = static_cast<size_t>(whole - taken);
    for (size_t i = 0; i < count; ++i) {
      busiest_[to + i] = std::min(busiest_[to + i], std::max(busy, busiest_[from + i]));
      path_[to + i] = std::min(path_[to + i], path + path_[from + i]);
      reduction_[to + i] = std::min(reduction_[to + i], std::max(reduction, reduction_[from + i]));
    }
  }
}

double GridBounds::least_seconds() const {
  if (sizes_ == 0) return kNever;
  const int layers = tables_->layers();
  return (tables_->passes() - 1) * busiest(layers, all()) + path(layers, all()) +
         reduction(layers, all()) + least_update_;
}

/// Every layer has a weight, every type a rate: the most weight a second that a device of it
/// carries in any stage. In the time that the busiest takes all devices carry all layers.
double GridBounds::fluid_busiest() const {
  const int layers = tables_->layers();
  std::vector<double> weight(static_cast<size_t>(layers) + 1, 0);  // of the layers before
  const auto of_stage = [&](int config, int first, int end) {
    return tables_->compute(config, first, end) * tables_->config(config).degree /
           least_work_[static_cast<size_t>(tables_->config(config).type)];
  };
  for (int layer = 0; layer < layers; ++layer) {
    double least = kNever;
    for (int config = 0; config < tables_->configs(); ++config)
      least = std::min(least, of_stage(config, layer, layer + 1));
    weight[static_cast<size_t>(layer) + 1] = weight[static_cast<size_t>(layer)] + least;
  }
  std::vector<double> rates(tables_->budget().size(), 0);
  for (int config = 0; config < tables_->configs(); ++config)
    for (int first = 0; first < layers; ++first)
      for (int end = first + 1; end <= layers; ++end) {
        if (!allowed(config, first, end)) continue;
        const GridConfig own = tables_->config(config);
        double& rate = rates[static_cast<size_t>(own.type)];
        rate =
            std::max(rate, (weight[static_cast<size_t>(end)] - weight[static_cast<size_t>(first)]) /
                               (tables_->least_busy(config, first, end) * own.degree));
      }
  double all = 0;
  for (size_t type = 0; type < rates.size(); ++type) all += tables_->budget()[type] * rates[type];
  return all > 0 ? weight.back() / all : kNever;
}

bool GridBounds::ruled_out(double cutoff) {
  const int layers = tables_->layers();
  std::vector<double> path(static_cast<size_t>(layers) + 1, kNever), reduction = path;
  path[0] = reduction[0] = 0;
  for (int end = 1; end <= layers; ++end)
    for (int config = 0; config < tables_->configs(); ++config)
      for (int first = 0; first < end; ++first) {
        if (!allowed(config, first, end)) continue;
        const auto to = static_cast<size_t>(end), from = static_cast<size_t>(first);
        path[to] = std::min(path[to], path[from] + tables_->least_path(config, first, end));
        reduction[to] = std::min(reduction[to],
                                 std::max(reduction[from], tables_->reduction(config, first, end)));
      }
  const double busiest = fluid_busiest();
  if (!((tables_->passes() - 1) * busiest + path.back() + reduction.back() + least_update_ <
        cutoff))
    return true;
  forbid(cutoff, busiest, path.back(), reduction.back());
  return false;
}

/// Stages that alone are busy for so long, or reduce for so long, that no plan with them is in less
/// than the cutoff, where none has less than the others. Whether there were any.
bool GridBounds::forbid(double cutoff, double busiest, double path, double reduction) {
  const int layers = tables_->layers();
  const double passes = tables_->passes() - 1;
  bool some = false;
  for (int config = 0; config < tables_->configs(); ++config)
    for (int first = 0; first < layers; ++first)
      for (int end = first + 1; end <= layers; ++end) {
        if (!allowed(config, first, end)) continue;
        const double busy = std::max(busiest, tables_->least_busy(config, first, end));
        const double reduced = std::max(reduction, tables_->reduction(config, first, end));
        if (passes * busy + path + reduced + least_update_ < cutoff) continue;
        allowed_[stage(config, first, end)] = 0;
        some = true;
      }
  return some;
}

}  // namespace motley
