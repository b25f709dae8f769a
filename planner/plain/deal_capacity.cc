#include "planner/plain/deal_capacity.h"

#include <algorithm>
#include <utility>

namespace motley {
namespace {

/// What a device computes in time: whole grains, or the short one among them.
struct Most {
  int whole = 0;
  int shorted = 0;
};

}  // namespace

DealCapacity::DealCapacity(const DealProblem& problem) : problem_(problem) {
  std::unordered_map<const GrainTable*, size_t> places;
  for (const GrainTable* table : problem.devices) {
    const auto [place, is_new] = places.emplace(table, kinds_.size());
    if (is_new) kinds_.emplace_back(table, 0);
    ++kinds_[place->second].second;
  }
}

DeviceRange DealCapacity::within(size_t bound) {
  const auto [entry, is_new] = known_.emplace(bound, DeviceRange{});
  if (is_new) {
    const double limit = (*problem_.section_times)[bound];
    entry->second = problem_.has_short ? count_with_short(limit) : count_whole(limit);
  }
  return entry->second;
}

size_t DealCapacity::first_for(int low, int high, size_t from) {
  size_t to = problem_.section_times->size();
  while (from < to) {
    const size_t middle = from + (to - from) / 2;
    if (within(middle).meets(low, high)) {
      to = middle;
    } else {
      from = middle + 1;
    }
  }
  return from;
}

/// Those who can take most come first: they are counted by what they can take.
DeviceRange DealCapacity::count_whole(double limit) const {
  std::vector<int64_t> devices_taking;
  DeviceRange range{1, 0};
  for (const auto& [table, count] : kinds_) {
    const auto most = static_cast<size_t>(table->full.most_within(limit));
    if (most == 0) continue;
    if (most >= devices_taking.size()) devices_taking.resize(most + 1, 0);
    devices_taking[most] += count;
    range.most += count;
  }
  int64_t left = problem_.grains, used = 0;
  for (size_t most = devices_taking.size(); most-- > 1 && left > 0;) {
    const auto each = static_cast<int64_t>(most);
    const int64_t taken = std::min(devices_taking[most], (left + each - 1) / each);
    used += taken;
    left -= taken * each;
  }
  if (left > 0) return {1, 0};
  range.fewest = static_cast<int>(used);
  return range;
}

/// For each number of devices the best place for the short grain: with one of those that would be
/// used without it, or with another instead of the last of them.
DeviceRange DealCapacity::count_with_short(double limit) const {
  std::vector<Most> able;
  for (const auto& [table, count] : kinds_) {
    const Most one{table->full.most_within(limit), table->shorted.most_within(limit)};
    if (one.whole > 0 || one.shorted > 0) able.insert(able.end(), static_cast<size_t>(count), one);
  }
  std::stable_sort(able.begin(), able.end(),
                   [](const Most& a, const Most& b) { return a.whole > b.whole; });
  std::vector<int> best_from(able.size() + 1, 0);  // the most with the short grain, from here on
  for (size_t i = able.size(); i-- > 0;) best_from[i] = std::max(best_from[i + 1], able[i].shorted);
  DeviceRange range{1, 0};
  int64_t first = 0;      // whole grains of the first n - 1
  bool has_gain = false;  // of the first n - 1, who gains most by the short grain, may lose by it
  int64_t gain = 0;
  for (size_t n = 1; n <= able.size(); ++n) {
    if (n > 1) {
      const Most& one = able[n - 2];
      if (one.whole == 0) break;
      first += one.whole;
      if (one.shorted > 0 && (!has_gain || one.shorted - one.whole > gain))
        has_gain = true, gain = one.shorted - one.whole;
    }
    const int last = able[n - 1].whole;
    const bool among = has_gain && last > 0 && first + last + gain >= problem_.grains;
    const bool beside = best_from[n - 1] > 0 && first + best_from[n - 1] >= problem_.grains;
    if (!among && !beside) continue;
    if (range.fewest > range.most) range.fewest = static_cast<int>(n);
    range.most = static_cast<int>(n);
  }
  return range;
}

}  // namespace motley
