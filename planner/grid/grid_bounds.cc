#include "planner/grid/grid_bounds.h"

#include <algorithm>

#include "planner/plain/grain_table.h"

namespace motley {

void GridBounds::Window::add(int first, double value) {
  while (end > begin && seconds[end - 1] >= value) --end;
  firsts[end] = first;
  seconds[end++] = value;
}

GridBounds::GridBounds(const GridTables& tables, const GridWindows& windows)
    : tables_(&tables), windows_(&windows), distances_(windows.distances()) {
  const size_t configs = at(tables.configs()), ends = at(tables.layers() + 1);
  alone_.assign(configs, kNever);
  after_others_.assign(configs, kNever);
  windows_of_configs_.assign(configs, {std::vector<int>(ends), std::vector<double>(ends)});
  sends_.assign(ends * configs * configs, 0);
  sends_alone_ = sends_;
  before_.assign(at(distances_ + 1) * ends * configs, kNever);
}

void GridBounds::find(const std::vector<double>& prices) {
  prices_ = prices;
  worth_ = 0;
  const std::vector<GridTables::Resource>& resources = tables_->resources();
  for (size_t i = 0; i < resources.size(); ++i) worth_ += prices[i] * resources[i].there;
  of_config_.assign(at(tables_->configs()), 0);
  for (int config = 0; config < tables_->configs(); ++config)
    for (size_t i = 0; i < resources.size(); ++i)
      of_config_[at(config)] += prices[i] * resources[i].taken_by(tables_->config(config));
  for (int from_end = distances_; from_end >= 1; --from_end) find_rows(from_end);
  path_ = kNever;
  for (int config = 0; config < tables_->configs(); ++config)
    path_ = std::min({path_, alone_[at(config)], after_others_[at(config)]});
  path_ -= worth_;
}

/// What is sent counts alike from some distance on.
void GridBounds::price_sends(int from_end) {
  const int configs = tables_->configs();
  if (from_end < distances_ && from_end > tables_->unlike_distances()) return;
  const double in = tables_->weights(from_end - 1, false).in_path;
  const double out = tables_->weights(from_end, false).out_path;
  const double out_alone = tables_->weights(from_end, true).out_path;
  size_t i = at(configs) * at(configs);
  for (int end = 1; end < tables_->layers(); ++end)
    for (int config = 0; config < configs; ++config)
      for (int next = 0; next < configs; ++next, ++i) {
        const double back = in * tables_->send(end, next, config);
        const double sent = tables_->send(end - 1, config, next);
        sends_[i] = out * sent + back;
        sends_alone_[i] = out_alone * sent + back;
      }
}

/// Those whose last stage is so many from the end; the stages before are farther, or of the same
/// distance where distances differ no more.
void GridBounds::find_rows(int from_end) {
  if (from_end > 1) price_sends(from_end);
  for (Window& window : windows_of_configs_) window.begin = window.end = 0;
  const int layers = tables_->layers();
  for (int end = 1; end <= layers - from_end + 1; ++end) {
    for (int config = 0; config < tables_->configs(); ++config) end_rows(config, end, from_end);
    if (from_end > 1) join_rows(end, from_end);
  }
}

void GridBounds::end_rows(int config, int end, int from_end) {
  Window& window = windows_of_configs_[at(config)];
  const int added = end - 1;
  if (added > 0)
    window.add(added,
               before_[state(added, from_end + 1, config)] - tables_->compute(config, 0, added));
  const int first = windows_->first_of(config, end, from_end);
  while (window.begin < window.end && window.firsts[window.begin] < first) ++window.begin;
  const double all = own(config, 0, end);
  alone_[at(config)] = first == 0 ? all : kNever;
  after_others_[at(config)] =
      window.begin < window.end ? all + window.seconds[window.begin] : kNever;
}

void GridBounds::join_rows(int end, int from_end) {
  const size_t configs = at(tables_->configs());
  double* const before = &before_[state(end, from_end, 0)];
  std::fill_n(before, configs, kNever);
  const auto join = [&](double seconds, const double* sends) {
    for (size_t next = 0; next < configs; ++next)
      before[next] = std::min(before[next], seconds + sends[next]);
  };
  for (size_t config = 0; config < configs; ++config) {
    const size_t sends = (at(end) * configs + config) * configs;
    if (after_others_[config] < kNever) join(after_others_[config], &sends_[sends]);
    if (alone_[config] < kNever) join(alone_[config], &sends_alone_[sends]);
  }
}

/// What find() took the least of, looked for again, stage by stage from the last on.
std::vector<GridStage> GridBounds::cheapest() const {
  std::vector<GridStage> stages;
  int end = tables_->layers(), next = 0;
  for (int from_end = 1; end > 0; ++from_end) {
    double least = kNever;
    int first = 0, config = 0;
    const SendWeights after = from_end > 1 ? tables_->weights(from_end - 1, false) : SendWeights{};
    for (int c = 0; c < tables_->configs(); ++c)
      for (int f = windows_->first_of(c, end, from_end); f < end; ++f) {
        double seconds = own(c, f, end);
        if (f > 0) seconds += before_[state(f, from_end + 1, c)];
        if (from_end > 1)
          seconds += tables_->weights(from_end, f == 0).out_path * tables_->send(end - 1, c, next) +
                     after.in_path * tables_->send(end, next, c);
        if (seconds >= least) continue;
        least = seconds;
        first = f;
        config = c;
      }
    if (least == kNever) return {};
    stages.push_back({first, end, tables_->config(config)});
    end = first;
    next = config;
  }
  std::reverse(stages.begin(), stages.end());
  return stages;
}

}  // namespace motley
