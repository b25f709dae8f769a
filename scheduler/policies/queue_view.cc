#include "scheduler/policies/queue_view.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/check.h"

namespace motley {

bool within(const PoolCounts& counts, const PoolCounts& others) {
  for (size_t pool = 0; pool < counts.size(); ++pool)
    if (counts[pool] > others[pool]) return false;
  return true;
}

int sum_of(const PoolCounts& counts) { return std::accumulate(counts.begin(), counts.end(), 0); }

int Alternative::room(const PoolCounts& beside, size_t pool) const {
  int left = limit[pool] - beside[pool];
  for (const SharedLimit& together : shared) {
    if (std::find(together.pools.begin(), together.pools.end(), pool) == together.pools.end())
      continue;
    int taken = 0;
    for (const size_t other : together.pools) taken += beside[other];
    left = std::min(left, together.most - taken);
  }
  return std::max(0, left);
}

bool Alternative::is_unfit(const PoolCounts& devices) const {
  return std::any_of(unfit.begin(), unfit.end(),
                     [&](const PoolCounts& set) { return within(devices, set); });
}

int Alternative::least_in(size_t pool) const {
  int fewest = least;
  for (const PoolCounts& set : unfit) fewest = std::max(fewest, set[pool] + 1);
  return fewest;
}

bool Alternative::fill(const PoolCounts& from, const std::vector<size_t>& order,
                       PoolCounts* devices) const {
  int missing = least - sum_of(*devices);
  for (const size_t pool : order) {
    const int more =
        std::max(0, std::min({missing, from[pool] - (*devices)[pool], room(*devices, pool)}));
    (*devices)[pool] += more;
    missing -= more;
  }
  return missing <= 0;
}

/// Of some pool there must be more than in each of the sets that are too little: all choices of
/// pools are tried, set by set. What they come to can be filled up whenever anything can: limits
/// are a matroid.
bool Alternative::grow_beyond(size_t set, const PoolCounts& from, const std::vector<size_t>& order,
                              PoolCounts* devices) const {
  while (set < unfit.size() && !within(*devices, unfit[set])) ++set;
  if (set == unfit.size()) return fill(from, order, devices);
  for (const size_t pool : order) {
    const int wanted = unfit[set][pool] + 1, more = wanted - (*devices)[pool];
    if (wanted > from[pool] || more > room(*devices, pool) || sum_of(*devices) + more > most)
      continue;
    PoolCounts grown = *devices;
    grown[pool] = wanted;
    if (!grow_beyond(set + 1, from, order, &grown)) continue;
    *devices = std::move(grown);
    return true;
  }
  return false;
}

PoolCounts Alternative::first_of(const PoolCounts& from, const std::vector<size_t>& order) const {
  PoolCounts devices(from.size(), 0);
  return grow_beyond(0, from, order, &devices) ? devices : PoolCounts();
}

bool Alternative::found_in(const PoolCounts& from) const {
  const PoolCounts none(from.size(), 0);
  std::vector<size_t> pools(from.size());
  std::iota(pools.begin(), pools.end(), size_t{0});
  const bool in_one = std::any_of(pools.begin(), pools.end(), [&](size_t pool) {
    return least_in(pool) <= std::min({from[pool], room(none, pool), most});
  });
  return in_one || (mix && !first_of(from, pools).empty());
}

bool Alternative::admits(const PoolCounts& devices) const {
  const int all = sum_of(devices);
  if (all < least || all > most || is_unfit(devices)) return false;
  PoolCounts before(devices.size(), 0);
  for (size_t pool = 0; pool < devices.size(); ++pool) {
    if (devices[pool] == 0) continue;
    if (devices[pool] > room(before, pool) || (!mix && devices[pool] != all)) return false;
    before[pool] = devices[pool];
  }
  return true;
}

/// Sets of pools that lie within each other or apart make it a matroid: whatever is taken first, no
/// other order gets more.
int Alternative::usable_of(const PoolCounts& devices) const {
  const PoolCounts none(devices.size(), 0);
  PoolCounts taken = none;
  int most_of_one = 0;
  for (size_t pool = 0; pool < devices.size(); ++pool) {
    const int here = std::max(0, devices[pool]);
    most_of_one = std::max(most_of_one, std::min(here, room(none, pool)));
    taken[pool] = std::min(here, room(taken, pool));
  }
  return mix ? sum_of(taken) : most_of_one;
}

void SpeedTable::add(size_t pool, int devices, double rate) {
  auto& points = points_[pool];
  MOTLEY_CHECK(devices > 0 && rate > 0 && (points.empty() || points.back().devices < devices),
               "counts must rise, rates be above 0");
  points.push_back({devices, rate});
}

double SpeedTable::rate(size_t pool, int devices) const {
  const auto& points = points_[pool];
  if (points.empty() || devices <= 0) return 0;
  const auto above =
      std::lower_bound(points.begin(), points.end(), devices,
                       [](const Point& point, int count) { return point.devices < count; });
  if (above == points.end()) return points.back().rate / points.back().devices * devices;
  if (above->devices == devices || above == points.begin())
    return above->rate / above->devices * devices;
  const Point& below = *(above - 1);
  const double way =
      static_cast<double>(devices - below.devices) / (above->devices - below.devices);
  return below.rate + way * (above->rate - below.rate);
}

double SpeedTable::fastest_rate(int devices) const {
  double fastest = 0;
  for (size_t pool = 0; pool < points_.size(); ++pool)
    fastest = std::max(fastest, rate(pool, devices));
  return fastest;
}

double SpeedTable::rate(const PoolCounts& devices) const {
  const int all = sum_of(devices);
  double sum = 0;
  int types = 0;
  for (size_t pool = 0; pool < devices.size(); ++pool) {
    if (devices[pool] == 0) continue;
    if (!knows(pool)) return 0;
    sum += rate(pool, all) / all * devices[pool];
    ++types;
  }
  return types > 1 ? sum * std::pow(1 - kLossOfFurtherTypes, types - 1) : sum;
}

double JobView::worth_of(double rate, int devices) const {
  const double fastest = speeds.fastest_rate(devices);
  return fastest > 0 ? rate / fastest : 0;
}

double JobView::seconds_at(double rate) const {
  return rate > 0 ? std::min(work_left / rate, longest) : kUnknownSeconds;
}

}  // namespace motley
