#include "planner/grid/grid_reach.h"

namespace motley {
namespace {

constexpr int64_t kMostStates = 2'000'000;

}  // namespace

GridWindows::GridWindows(const GridTables& tables, const GridMaxima& most, int most_distances)
    : tables_(&tables), most_(most), rows_(row(tables.configs(), 0)) {
  const std::vector<int16_t> all = lowest();
  const std::vector<int16_t> last = narrowed(all, tables.most_stages());
  for (bool more = true; more;) {
    const std::vector<int16_t> next = narrowed(all, ++distances_);
    firsts_.insert(firsts_.end(), next.begin(), next.end());
    more = distances_ < tables.most_stages() && (distances_ <= tables.unlike_distances() ||
                                                 (distances_ < most_distances && next != last));
  }
}

/// At whatever distance.
std::vector<int16_t> GridWindows::lowest() const {
  const int layers = tables_->layers();
  std::vector<int16_t> lowest(rows_, static_cast<int16_t>(layers));
  for (int config = 0; config < tables_->configs(); ++config) {
    int held = 0;
    for (int end = 1; end <= layers; ++end) {
      while (held < end && tables_->farthest_from_end(config, held, end) < 1) ++held;
      int first = held;
      while (first < end && !allowed(config, first, end)) ++first;
      lowest[row(config, end)] = static_cast<int16_t>(first);
    }
    for (int end = layers - 1; end > 0; --end)
      lowest[row(config, end)] = std::min(lowest[row(config, end)], lowest[row(config, end + 1)]);
  }
  return lowest;
}

std::vector<int16_t> GridWindows::narrowed(const std::vector<int16_t>& lowest, int from_end) const {
  std::vector<int16_t> firsts(rows_, 0);
  for (int config = 0; config < tables_->configs(); ++config)
    for (int end = 1, first = 0; end <= tables_->layers(); ++end) {
      first = std::max(first, std::min<int>(lowest[row(config, end)], end));
      while (first < end && tables_->farthest_from_end(config, first, end) < from_end) ++first;
      firsts[row(config, end)] = static_cast<int16_t>(first);
    }
  return firsts;
}

GridReach::GridReach(const GridTables& tables, const GridWindows& windows) {
  int64_t states = windows.distances();
  for (const int there : tables.budget()) states *= there + 1;
  strides_.assign(tables.budget().size(), 0);
  if (states > kMostStates) {
    reach_ = {static_cast<int16_t>(tables.layers())};
    return;
  }
  for (size_t type = 0; type < strides_.size(); ++type) {
    strides_[type] = sizes_;
    sizes_ *= tables.budget()[type] + 1;
  }
  distances_ = windows.distances();
  reach_.assign(static_cast<size_t>(states), 0);
  for (int from_end = distances_; from_end >= 1; --from_end) find(tables, windows, from_end);
}

/// Those before the stage of this distance are farther, or of the same where distances differ no
/// more.
void GridReach::find(const GridTables& tables, const GridWindows& windows, int from_end) {
  const int layers = tables.layers(), configs = tables.configs();
  const auto ends = static_cast<size_t>(layers) + 1;
  std::vector<int16_t> longest(static_cast<size_t>(configs) * ends, 0);  // ends, by beginning
  for (int config = 0; config < configs; ++config) {
    int16_t* const of = &longest[static_cast<size_t>(config) * ends];
    for (int end = 1; end <= layers; ++end) {
      const int first = windows.first_of(config, end, from_end);
      if (first < end) of[first] = static_cast<int16_t>(end);
    }
    for (size_t first = 1; first < ends; ++first) of[first] = std::max(of[first], of[first - 1]);
  }
  int16_t* const here = &reach_[static_cast<size_t>((from_end - 1) * sizes_)];
  const int16_t* const before =
      &reach_[static_cast<size_t>((std::min(from_end + 1, distances_) - 1) * sizes_)];
  std::vector<int> left(strides_.size(), 0);
  for (int64_t i = 0; i < sizes_; ++i) {
    int16_t most = 0;
    for (int config = 0; config < configs; ++config) {
      const GridConfig own = tables.config(config);
      if (left[static_cast<size_t>(own.type)] < own.degree) continue;
      const int16_t others = before[i - own.degree * stride(own.type)];
      most =
          std::max(most, longest[static_cast<size_t>(config) * ends + static_cast<size_t>(others)]);
    }
    here[i] = most;
    for (size_t type = 0; type < left.size() && ++left[type] > tables.budget()[type]; ++type)
      left[type] = 0;
  }
}

}  // namespace motley
