#include "planner/grid/grid_reach.h"

namespace motley {
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

int64_t GridReach::states_of(const GridTables& tables, const GridWindows& windows) {
  constexpr int64_t kMore = int64_t{1} << 40;  // than anybody has time for
  int64_t states = windows.distances();
  for (const int there : tables.budget()) states = std::min(kMore, states * (there + 1));
  return states;
}

GridReach::GridReach(const GridTables& tables, const GridWindows& windows, int64_t most_states) {
  const int64_t states = states_of(tables, windows);
  strides_.assign(tables.budget().size(), 0);
  if (states > most_states) {
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

/// Of a config, where the longest stage that begins with a layer or before ends.
std::vector<int16_t> GridReach::ends_of(const GridTables& tables, const GridWindows& windows,
                                        int config, int from_end) {
  std::vector<int16_t> ends(static_cast<size_t>(tables.layers()) + 1, 0);
  for (int end = 1; end <= tables.layers(); ++end) {
    const int first = windows.first_of(config, end, from_end);
    if (first < end) ends[static_cast<size_t>(first)] = static_cast<int16_t>(end);
  }
  for (size_t first = 1; first < ends.size(); ++first)
    ends[first] = std::max(ends[first], ends[first - 1]);
  return ends;
}

/// Those before the stage of this distance are farther, or of the same where distances differ no
/// more.
void GridReach::find(const GridTables& tables, const GridWindows& windows, int from_end) {
  std::vector<std::vector<int16_t>> ends;
  for (int config = 0; config < tables.configs(); ++config)
    ends.push_back(ends_of(tables, windows, config, from_end));
  if (from_end < distances_)
    find_before_farther(tables, ends, from_end);
  else
    find_before_same(tables, ends);
}

/// Config by config, all that have devices enough for it in runs.
void GridReach::find_before_farther(const GridTables& tables,
                                    const std::vector<std::vector<int16_t>>& ends, int from_end) {
  int16_t* const here = &reach_[static_cast<size_t>((from_end - 1) * sizes_)];
  const int16_t* const farther = here + sizes_;
  for (int config = 0; config < tables.configs(); ++config) {
    const GridConfig own = tables.config(config);
    const int16_t* const of = ends[static_cast<size_t>(config)].data();
    const int64_t taken = own.degree * stride(own.type);
    const int64_t run = (tables.budget()[static_cast<size_t>(own.type)] + 1) * stride(own.type);
    for (int64_t begin = 0; begin < sizes_; begin += run)
      for (int64_t i = begin + taken; i < begin + run; ++i)
        here[i] = std::max(here[i], of[farther[i - taken]]);
  }
}

/// By numbers of devices, as those with fewer come first.
void GridReach::find_before_same(const GridTables& tables,
                                 const std::vector<std::vector<int16_t>>& ends) {
  int16_t* const here = &reach_[static_cast<size_t>((distances_ - 1) * sizes_)];
  std::vector<int> left(strides_.size(), 0);
  for (int64_t i = 0; i < sizes_; ++i) {
    for (int config = 0; config < tables.configs(); ++config) {
      const GridConfig own = tables.config(config);
      if (left[static_cast<size_t>(own.type)] < own.degree) continue;
      const auto others = static_cast<size_t>(here[i - own.degree * stride(own.type)]);
      here[i] = std::max(here[i], ends[static_cast<size_t>(config)][others]);
    }
    for (size_t type = 0; type < left.size() && ++left[type] > tables.budget()[type]; ++type)
      left[type] = 0;
  }
}

}  // namespace motley
