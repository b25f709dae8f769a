#include "planner/grid/grid_bounds.h"

#include <algorithm>

#include "planner/plain/grain_table.h"

namespace motley {

GridBounds::GridBounds(const GridTables& tables, const GridWindows& windows)
    : tables_(&tables), windows_(&windows), distances_(windows.distances()) {
  const size_t configs = at(tables.configs()), ends = at(tables.layers() + 1);
  rows_ = configs * ends;
  alone_.assign(rows_, kNever);
  after_others_.assign(rows_, kNever);
  windows_of_configs_.assign(configs, {std::vector<int>(ends), std::vector<double>(ends)});
  joined_.assign(configs, kNever);
  before_.assign(at(distances_ + 1) * ends * configs, kNever);
  find_least_ends();
}

/// The stages after it are as long as may be.
void GridBounds::find_least_ends() {
  const int layers = tables_->layers();
  least_ends_ = {0, layers};
  for (int from_end = 1; from_end < distances_; ++from_end) {
    int least = layers;
    for (int config = 0; config < tables_->configs(); ++config)
      least = std::min(least, windows_->first_of(config, least_ends_.back(), from_end));
    least_ends_.push_back(std::max(1, least));
  }
  least_ends_[at(distances_)] = 1;  // those before are of the same distance
  for (int from_end = 1; from_end <= distances_; ++from_end)
    states_ += std::max(0, layers - from_end + 2 - least_ends_[at(from_end)]) * tables_->configs();
}

/// What is paid for the maxima of stages is worth as much as the least of them.
void GridBounds::price_configs(const GridMaxima& least) {
  const int layers = tables_->layers();
  const std::vector<GridTables::Resource>& resources = tables_->resources();
  worth_ = 0;
  for (size_t r = 0; r < resources.size(); ++r) worth_ += prices_.devices[r] * resources[r].there;
  for (size_t i = 0; i < least.size(); ++i) worth_ += times_paid(*tables_, prices_, i) * least[i];
  work_.clear();
  of_config_.clear();
  for (int config = 0; config < tables_->configs(); ++config) {
    const GridConfig own = tables_->config(config);
    double& paid = of_config_.emplace_back(0);
    for (size_t r = 0; r < resources.size(); ++r)
      paid += prices_.devices[r] * resources[r].taken_by(own);
    for (int end = 0; end <= layers; ++end) work_.push_back(tables_->compute(config, 0, end));
    for (size_t i = 0; i < least.size(); ++i) {
      if (prices_.maxima[i].empty()) continue;
      const double price = prices_.maxima[i][at(own.type)] * own.degree;
      paid += price * tables_->least_own(i, config);
      for (int end = 0; end <= layers; ++end)
        work_[row(config) + at(end)] += price * tables_->least_of_layers(i, config, end);
    }
  }
}

void GridBounds::find(const GridPrices& prices, const GridMaxima& least) {
  prices_ = prices;
  price_configs(least);
  for (int from_end = distances_; from_end >= 1; --from_end) find_rows(from_end);
  path_ = kNever;
  for (int config = 0; config < tables_->configs(); ++config)
    path_ = std::min({path_, alone_[row(config) + at(tables_->layers())],
                      after_others_[row(config) + at(tables_->layers())]});
  path_ -= worth_;
}

/// Those whose last stage is so many from the end; the stages before are farther, or of the same
/// distance where distances differ no more.
void GridBounds::find_rows(int from_end) {
  start_rows(from_end);
  const int begin = least_ends_[at(from_end)], last = tables_->layers() - from_end + 1;
  // Of the last distance each end needs the ones before it of the same.
  const int at_once = from_end < distances_ ? std::max(0, last - begin + 1) : 1;
  for (int end = begin; end <= last; end += at_once) {
    for (int config = 0; config < tables_->configs(); ++config)
      end_rows(config, end, end + at_once - 1, from_end);
    for (int of = end; from_end > 1 && of < end + at_once; ++of) join_rows(of, from_end);
  }
}

void GridBounds::start_rows(int from_end) {
  for (int config = 0; config < tables_->configs(); ++config) {
    Window& window = windows_of_configs_[at(config)];
    window.begin = window.end = 0;
    window.next = std::max(1, windows_->first_of(config, least_ends_[at(from_end)], from_end));
  }
}

void GridBounds::end_rows(int config, int begin, int last, int from_end) {
  const double* const before = &before_[row(from_end + 1, config)];
  const double* const work = &work_[row(config)];
  const int16_t* const of_windows = windows_->firsts_of(config, from_end);
  const double own = of_config_[at(config)];
  Window& window = windows_of_configs_[at(config)];
  int* const firsts = window.firsts.data();
  double* const seconds = window.seconds.data();
  size_t low = window.begin, high = window.end;
  for (int end = begin, next = window.next; end <= last; ++end) {
    for (; next < end; ++next) {
      const double value = before[next] - work[next];
      while (high > low && seconds[high - 1] >= value) --high;
      firsts[high] = next;
      seconds[high++] = value;
    }
    const int first = of_windows[end];
    while (low < high && firsts[low] < first) ++low;
    const double all = own + work[end];
    alone_[row(config) + at(end)] = first == 0 ? all : kNever;
    after_others_[row(config) + at(end)] = low < high ? all + seconds[low] : kNever;
  }
  window.begin = low;
  window.end = high;
  window.next = std::max(window.next, last);
}

void GridBounds::join_rows(int end, int from_end) {
  const size_t configs = at(tables_->configs()), ends = at(tables_->layers() + 1);
  std::fill(joined_.begin(), joined_.end(), kNever);
  const auto join = [&](size_t config, double seconds, bool first) {
    const double* const sends =
        &tables_->path_sends(from_end, first)[(at(end) * configs + config) * configs];
    for (size_t next = 0; next < configs; ++next)
      joined_[next] = std::min(joined_[next], seconds + sends[next]);
  };
  for (size_t config = 0; config < configs; ++config) {
    const size_t of = config * ends + at(end);
    if (after_others_[of] < kNever) join(config, after_others_[of], false);
    if (alone_[of] < kNever) join(config, alone_[of], true);
  }
  for (size_t next = 0; next < configs; ++next)
    before_[row(from_end, static_cast<int>(next)) + at(end)] = joined_[next];
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
        if (f > 0) seconds += before_[row(from_end + 1, c) + at(f)];
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
