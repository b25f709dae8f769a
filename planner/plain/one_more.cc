#include "planner/plain/one_more.h"

#include <algorithm>

namespace motley {

OneMoreDevice::OneMoreDevice(const GrainSearch& search, const Deal& chosen)
    : search_(search),
      used_hosts_(static_cast<size_t>(search.reduction().host_count()), false),
      ranks_(chosen.devices() + 1) {
  for (size_t i = 0; i < chosen.grains.size(); ++i) {
    used_.push_back(chosen.grains[i] > 0);
    if (used_.back()) used_hosts_[static_cast<size_t>(search.reduction().host_of(i))] = true;
  }
  reduction_among_used_ = search.reduction().seconds(ranks_, used_hosts_);
}

const OneMoreDevice::Taken& OneMoreDevice::taken(size_t bound) {
  const auto [entry, is_new] = taken_.emplace(bound, Taken{});
  if (!is_new) return entry->second;
  const double limit = search_.tables().section_times()[bound];
  for (size_t i = 0; i < used_.size(); ++i) {
    if (!used_[i]) continue;
    const GrainCurve& curve = search_.tables().of()[i]->full;
    const int most = curve.most_within(limit);
    entry->second.most += most;
    const int whole = curve.whole_within(limit);
    entry->second.whole += whole;
    entry->second.all = entry->second.all && most > 0;
    entry->second.all_whole = entry->second.all_whole && whole > 0;
  }
  return entry->second;
}

double OneMoreDevice::reduction_with(size_t candidate) {
  const ReductionTable& reduction = search_.reduction();
  const int host = reduction.host_of(candidate);
  const auto [entry, is_new] = reduction_.emplace(host, reduction_among_used_);
  if (!is_new || used_hosts_[static_cast<size_t>(host)]) return entry->second;
  double& seconds = entry->second;
  seconds = std::max(seconds, reduction.pair_seconds(ranks_, host, host));
  for (int other = 0; other < reduction.host_count(); ++other)
    if (used_hosts_[static_cast<size_t>(other)])
      seconds = std::max(
          seconds, reduction.pair_seconds(ranks_, std::min(host, other), std::max(host, other)));
  return seconds;
}

/// Nothing where only a search of its own can tell.
std::optional<double> OneMoreDevice::by_counting(size_t candidate) {
  const int grains = search_.cut().grains();
  if (search_.cut().missing() > 0 || search_.sums_beside()) return std::nullopt;
  const GrainCurve& curve = search_.tables().of()[candidate]->full;
  const std::vector<double>& times = search_.tables().section_times();
  size_t from = 0, to = times.size();
  while (from < to) {
    const size_t middle = from + (to - from) / 2;
    const int own = curve.most_within(times[middle]);
    const Taken& others = taken(middle);
    if (others.all && own > 0 && others.most + own >= grains) {
      to = middle;
    } else {
      from = middle + 1;
    }
  }
  if (from == times.size()) return std::nullopt;
  const int whole = curve.whole_within(times[from]);
  const Taken& others = taken(from);
  if (!others.all_whole || whole == 0 || others.whole + whole < grains) return std::nullopt;
  return step_seconds(times[from], reduction_with(candidate));
}

double OneMoreDevice::step_seconds_with(size_t candidate) {
  if (!search_.tables().of()[candidate]) {  // it changes nothing
    if (!without_) without_ = search_.run_with_all(used_).deal.step_seconds;
    return *without_;
  }
  if (const auto counted = by_counting(candidate)) return *counted;
  std::vector<bool> used = used_;
  used[candidate] = true;
  return search_.run_with_all(used).deal.step_seconds;
}

}  // namespace motley
