#include "planner/grid/grid_mixes.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>

namespace motley {
namespace {

/// Replicas by part of two stages one after the other, where only some parts may meet.
class Meeting {
 public:
  Meeting(const GridMix& before, const GridMix& after) : before_(before), after_(after) {
    may_.assign(before.parts.size(), std::vector<bool>(after.parts.size(), false));
  }

  void allow(size_t i, size_t j, bool may) { may_[i][j] = may; }

  /// By Hall: whichever parts of the former are looked at, those that they may meet have as many
  /// replicas.
  bool possible() const {
    for (size_t some = 1; some < size_t{1} << before_.parts.size(); ++some) {
      int need = 0, room = 0;
      for (size_t i = 0; i < before_.parts.size(); ++i)
        if ((some >> i & 1) != 0) need += before_.parts[i].second;
      for (size_t j = 0; j < after_.parts.size(); ++j) {
        bool meets = false;
        for (size_t i = 0; i < before_.parts.size(); ++i)
          meets = meets || ((some >> i & 1) != 0 && may_[i][j]);
        if (meets) room += after_.parts[j].second;
      }
      if (room < need) return false;
    }
    return true;
  }

  /// Where it is possible, by augmenting paths, a replica at a time.
  std::vector<std::vector<int>> replicas() {
    const size_t rows = before_.parts.size(), columns = after_.parts.size();
    met_.assign(rows, std::vector<int>(columns, 0));
    for (const auto& [config, count] : after_.parts) room_.push_back(count);
    for (size_t i = 0; i < rows; ++i)
      for (int left = before_.parts[i].second; left > 0; --left) {
        std::vector<bool> seen(columns, false);
        if (!place(i, &seen)) return met_;
      }
    return met_;
  }

 private:
  bool place(size_t i, std::vector<bool>* seen) {
    for (size_t j = 0; j < room_.size(); ++j) {
      if (!may_[i][j] || (*seen)[j]) continue;
      (*seen)[j] = true;
      bool has_room = room_[j] > 0;
      if (has_room) --room_[j];
      for (size_t other = 0; other < met_.size() && !has_room; ++other) {
        if (met_[other][j] == 0 || !place(other, seen)) continue;
        --met_[other][j];
        has_room = true;
      }
      if (!has_room) continue;
      ++met_[i][j];
      return true;
    }
    return false;
  }

  const GridMix& before_;
  const GridMix& after_;
  std::vector<std::vector<bool>> may_;
  std::vector<std::vector<int>> met_;
  std::vector<int> room_;
};

/// Replicas one after another, of some types, and the seconds that each pair of neighbours takes.
struct ReplicaRow {
  std::vector<int> counts;    ///< by type
  std::vector<double> pairs;  ///< by type and that of the next one

  double pair(size_t type, size_t next) const { return pairs[type * counts.size() + next]; }

  /// Of all pairs of neighbours, over all orders.
  double slowest_at_best() {
    double least = kNoGridSeconds;
    for (size_t type = 0; type < counts.size(); ++type) go_on(type, 0, &least);
    return least;
  }

  /// No more than that: of pairs that there are in any order, and of those by which each type is
  /// next to another (Prim 1957).
  double slowest_at_least() const {
    double slowest = 0;
    std::vector<double> nearest(counts.size());
    const int all = std::accumulate(counts.begin(), counts.end(), 0);
    for (size_t type = 0; type < counts.size(); ++type) {
      nearest[type] = std::min(pair(0, type), pair(type, 0));
      if (2 * counts[type] > all + 1) slowest = std::max(slowest, pair(type, type));
    }
    std::set<size_t> left;
    for (size_t type = 1; type < counts.size(); ++type) left.insert(type);
    while (!left.empty()) {
      const size_t next = *std::min_element(
          left.begin(), left.end(), [&](size_t a, size_t b) { return nearest[a] < nearest[b]; });
      slowest = std::max(slowest, nearest[next]);
      left.erase(next);
      for (const size_t type : left)
        nearest[type] = std::min({nearest[type], pair(next, type), pair(type, next)});
    }
    return slowest;
  }

 private:
  void go_on(size_t type, double slowest, double* least) {
    if (slowest >= *least || counts[type] == 0) return;
    --counts[type];
    bool is_last = true;
    for (size_t next = 0; next < counts.size(); ++next) {
      is_last = is_last && counts[next] == 0;
      go_on(next, std::max(slowest, pair(type, next)), least);
    }
    if (is_last) *least = slowest;
    ++counts[type];
  }
};

}  // namespace

GridMixes::GridMixes(const GridCosts& costs, GridShape shape, const std::vector<GridGroups>& fleet)
    : costs_(costs),
      shape_(shape),
      passes_(costs.passes(shape.micro_batch, shape.replicas)),
      layers_(costs.layers()) {
  find_resources(fleet);
  find_configs(fleet);
  for (const GridConfig config : configs_) {
    std::vector<double>& computed = computed_.emplace_back(1, 0.0);
    for (int layer = 0; layer < layers_; ++layer)
      computed.push_back(computed.back() + costs_.compute(config, shape_.micro_batch, layer));
  }
  find_least();
}

void GridMixes::find(const GridMixLimits& limits) {
  price_stages();
  price_sends();
  GridMix mix{{}, std::vector<int>(there_.size(), 0)};
  extend(limits, 0, shape_.replicas, &mix);
}

double GridMixes::least_seconds() const {
  const std::vector<int> nothing(there_.size(), 0);
  return (passes_ - 1) * least_busy(layers_, nothing) + least_path(layers_);
}

/// Groups only where the number of devices does not say already how many there are.
void GridMixes::find_resources(const std::vector<GridGroups>& fleet) {
  for (int type = 0; type < costs_.types(); ++type) {
    const GridGroups& groups = fleet[at(type)];
    there_.push_back({type, 1, groups.empty() ? 0 : groups.at(1)});
  }
  for (int type = 0; type < costs_.types(); ++type)
    for (const auto& [group, count] : fleet[at(type)])
      if (count < there_[at(type)].count / group) there_.push_back({type, group, count});
}

void GridMixes::find_configs(const std::vector<GridGroups>& fleet) {
  for (int type = 0; type < costs_.types(); ++type)
    for (const int degree : costs_.degrees(type, shape_.micro_batch)) {
      const auto there = fleet[at(type)].find(degree);
      if (there != fleet[at(type)].end() && there->second > 0) configs_.push_back({type, degree});
    }
}

void GridMixes::price_stages() {
  for (const GridConfig config : configs_) {
    std::vector<double>& updates = updates_.emplace_back(stage(layers_, layers_) + 1, 0.0);
    std::vector<int>& farthest = farthest_.emplace_back(updates.size(), 0);
    for (int first = 0; first < layers_; ++first)
      for (int end = first + 1; end <= layers_; ++end) {
        const GridStage priced{first, end, config};
        farthest[stage(first, end)] = costs_.farthest_from_end(priced, shape_.micro_batch, passes_);
        if (farthest[stage(first, end)] < 1) break;  // nor do more layers fit
        updates[stage(first, end)] = costs_.update(priced, shape_.micro_batch);
      }
  }
}

void GridMixes::price_sends() {
  for (int layer = 0; layer < layers_; ++layer)
    for (const GridConfig from : configs_)
      for (const GridConfig to : configs_)
        sends_.push_back(costs_.send(layer, shape_.micro_batch, from, to));
}

/// Of any devices, as if none were ever idle: in proportion to the speed of their types.
void GridMixes::find_least() {
  least_work_.assign(at(costs_.types()), kNoGridSeconds);
  for (size_t c = 0; c < configs_.size(); ++c) {
    double& least = least_work_[at(configs_[c].type)];
    least = std::min(least, computed_[c].back() * configs_[c].degree);
  }
  least_path_ = work_ = {0};
  for (int layer = 0; layer < layers_; ++layer) {
    double path = kNoGridSeconds, work = kNoGridSeconds;
    for (size_t c = 0; c < configs_.size(); ++c) {
      const double seconds = computed_[c][at(layer) + 1] - computed_[c][at(layer)];
      path = std::min(path, seconds);
      work = std::min(work, seconds * configs_[c].degree / least_work_[at(configs_[c].type)]);
    }
    least_path_.push_back(least_path_.back() + path);
    work_.push_back(work_.back() + work);
  }
}

void GridMixes::extend(const GridMixLimits& limits, int config, int replicas, GridMix* mix) {
  if (all_.size() == limits.most_mixes) {
    complete_ = false;
    return;
  }
  if (replicas == 0) return all_.push_back(*mix);
  if (config == static_cast<int>(configs_.size())) return;
  extend(limits, config + 1, replicas, mix);
  if (mix->parts.size() == limits.most_parts) {
    complete_ = false;
    return;
  }
  const std::vector<int> before = mix->taken;
  const int apart = std::max(1, shape_.replicas / limits.most_counts);
  complete_ = complete_ && apart == 1;
  for (int count = 1; count <= replicas && can_take(config, *mix); ++count) {
    for (size_t r = 0; r < there_.size(); ++r)
      mix->taken[r] += there_[r].taken_by(configs_[at(config)]);
    const bool is_last = count == replicas || !can_take(config, *mix);
    if (count % apart != 0 && !is_last) continue;
    mix->parts.emplace_back(config, count);
    extend(limits, config + 1, replicas - count, mix);
    mix->parts.pop_back();
  }
  mix->taken = before;
}

bool GridMixes::can_take(int config, const GridMix& mix) const {
  for (size_t r = 0; r < there_.size(); ++r)
    if (mix.taken[r] + there_[r].taken_by(configs_[at(config)]) > there_[r].count) return false;
  return true;
}

GridMixPrice GridMixes::price(const GridMix& mix, int first, int end) const {
  GridMixPrice price{.farthest_from_end = layers_};
  for (const auto& [config, count] : mix.parts) {
    price.compute = std::max(price.compute, compute(config, first, end));
    price.update = std::max(price.update, updates_[at(config)][stage(first, end)]);
    price.farthest_from_end =
        std::min(price.farthest_from_end, farthest_[at(config)][stage(first, end)]);
  }
  if (price.farthest_from_end > 0) price.reduction = reduction(mix, first, end);
  return price;
}

double GridMixes::reduction(const GridMix& mix, int first, int end) const {
  if (shape_.replicas == 1) return 0;
  int degree = configs_[at(mix.parts.front().first)].degree;
  std::map<int, int> counts;  // by type
  for (const auto& [config, count] : mix.parts) {
    degree = std::min(degree, configs_[at(config)].degree);
    counts[configs_[at(config)].type] += count;
  }
  ReplicaRow row;
  for (const auto& [type, count] : counts) {
    row.counts.push_back(count);
    for (const auto& [next, unused] : counts)
      row.pairs.push_back(
          costs_.reduction({first, end, {type, degree}}, {next, degree}, shape_.replicas));
  }
  return shape_.replicas <= kFewInOrder ? row.slowest_at_best() : row.slowest_at_least();
}

std::vector<GridSends> GridMixes::sends(const GridMix& before, const GridMix& after,
                                        int layer) const {
  if (before.parts.size() == 1 && after.parts.size() == 1) {
    const int from = before.parts.front().first, to = after.parts.front().first;
    return {{send(layer - 1, from, to), send(layer, to, from)}};
  }
  std::vector<std::vector<GridSends>> each(before.parts.size());
  std::vector<double> outs, ins;
  for (size_t i = 0; i < each.size(); ++i)
    for (const auto& [to, count] : after.parts) {
      const int from = before.parts[i].first;
      each[i].push_back({send(layer - 1, from, to), send(layer, to, from)});
      outs.push_back(each[i].back().out);
      ins.push_back(each[i].back().in);
    }
  for (std::vector<double>* all : {&outs, &ins}) {
    std::sort(all->begin(), all->end());
    all->erase(std::unique(all->begin(), all->end()), all->end());
  }
  std::vector<GridSends> best;
  double least_in = std::numeric_limits<double>::infinity();
  Meeting meeting(before, after);
  for (const double out : outs)
    for (const double in : ins) {
      if (in >= least_in) break;
      for (size_t i = 0; i < each.size(); ++i)
        for (size_t j = 0; j < each[i].size(); ++j)
          meeting.allow(i, j, each[i][j].out <= out && each[i][j].in <= in);
      if (!meeting.possible()) continue;
      best.push_back({out, in});
      least_in = in;
      break;
    }
  return best;
}

std::vector<std::vector<int>> GridMixes::put_together(const GridMix& before, const GridMix& after,
                                                      int layer, const GridSends& most) const {
  Meeting meeting(before, after);
  for (size_t i = 0; i < before.parts.size(); ++i)
    for (size_t j = 0; j < after.parts.size(); ++j) {
      const int from = before.parts[i].first, to = after.parts[j].first;
      meeting.allow(i, j,
                    send(layer - 1, from, to) <= most.out && send(layer, to, from) <= most.in);
    }
  return meeting.replicas();
}

}  // namespace motley
