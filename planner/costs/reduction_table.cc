#include "planner/costs/reduction_table.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "planner/plain/grain_table.h"

namespace motley {
namespace {

/// Seconds of more ranks may be less by no more than this, where they only rise but for rounding.
constexpr double kRoundedDown = 1 - 1e-12;

/// Another host: seconds at least, if it takes part, and its candidates.
using OtherHost = std::pair<double, int>;

/// The least seconds within which other hosts have `room` candidates; kNever if they never have.
double seconds_for_room(std::vector<OtherHost> others, int room) {
  size_t from = 0;
  for (size_t chunk = 16; room > 0 && from < others.size(); chunk *= 4) {
    const size_t to = std::min(from + chunk, others.size());
    const auto at = [&](size_t i) { return others.begin() + static_cast<std::ptrdiff_t>(i); };
    // All of the chunk are nearer than what follows: most often all of it is needed.
    if (to < others.size()) std::nth_element(at(from), at(to), others.end());
    const int all = std::accumulate(
        at(from), at(to), 0, [](int sum, const OtherHost& other) { return sum + other.second; });
    if (all < room) {
      room -= all;
      from = to;
      continue;
    }
    std::sort(at(from), at(to));
    for (; room > 0; ++from) room -= others[from].second;
    return others[from - 1].first;
  }
  return kNever;
}

}  // namespace

ReductionTable::ReductionTable(ReductionModel model, const std::vector<Candidate>& candidates)
    : model_(std::move(model)), turns_(model_.turns()) {
  std::map<std::string, int> numbers;
  std::vector<ReductionModel::Host> hosts;
  for (const Candidate& candidate : candidates) {
    const auto [entry, is_new] = numbers.emplace(candidate.spec->host, host_count());
    if (is_new) {
      hosts.push_back(model_.host(candidate.spec->host));
      sizes_.push_back(0);
    }
    host_of_.push_back(entry->second);
    ++sizes_[static_cast<size_t>(entry->second)];
  }
  pairs_.reserve(hosts.size() * hosts.size());
  for (size_t a = 0; a < hosts.size(); ++a)
    for (size_t b = 0; b < hosts.size(); ++b)
      pairs_.push_back(model_.pair(hosts[a], hosts[b], a == b));
}

double ReductionTable::pair_seconds(int ranks, int a, int b) const {
  return ranks < 2 ? 0 : model_.pair_seconds(ranks, pair(a, b));
}

double ReductionTable::seconds(int ranks, const std::vector<bool>& hosts) const {
  const auto [a, b] = slowest_pair(ranks, hosts);
  return a < 0 ? 0 : pair_seconds(ranks, a, b);
}

std::pair<int, int> ReductionTable::slowest_pair(int ranks, const std::vector<bool>& hosts) const {
  std::vector<int> used;
  for (int host = 0; host < host_count(); ++host)
    if (hosts[static_cast<size_t>(host)]) used.push_back(host);
  std::pair<int, int> slowest{-1, -1};
  double most = -1;
  for (size_t i = 0; i < used.size(); ++i) {
    for (size_t j = i; j < used.size(); ++j) {
      const double seconds = pair_seconds(ranks, used[i], used[j]);
      if (seconds > most) most = seconds, slowest = {used[i], used[j]};
    }
  }
  return slowest;
}

std::vector<ReductionTable::Ranks> ReductionTable::between_turns(int low, int high) const {
  std::vector<Ranks> parts;
  for (auto turn = std::upper_bound(turns_.begin(), turns_.end(), low);
       turn != turns_.end() && *turn <= high; ++turn) {
    parts.push_back({low, *turn - 1});
    low = *turn;
  }
  parts.push_back({low, high});
  // Without turns seconds rise: those of `low` are least, and asked for most often.
  if (turns_.empty()) parts.back().high = low;
  return parts;
}

double ReductionTable::least_of_pair(const Ranks& ranks, int a, int b) const {
  const double seconds = pair_seconds(ranks.low, a, b);
  return ranks.low == ranks.high ? seconds : std::min(seconds, pair_seconds(ranks.high, a, b));
}

double ReductionTable::least_pair_seconds(int low, int high, int a, int b) const {
  double least = kNever;
  for (const Ranks& part : between_turns(low, high))
    least = std::min(least, least_of_pair(part, a, b));
  return low == high ? least : least * kRoundedDown;
}

/// The other hosts that are nearest, until there are candidates enough: any choice of hosts has one
/// at least as far.
double ReductionTable::find_least(const Ranks& ranks, int host,
                                  const std::vector<double>& within) const {
  const double own = within[static_cast<size_t>(host)];
  const int room = ranks.low - sizes_[static_cast<size_t>(host)];
  if (room <= 0) return own;
  std::vector<OtherHost> others;
  others.reserve(sizes_.size());
  for (int other = 0; other < host_count(); ++other) {
    if (other == host) continue;
    const auto at = static_cast<size_t>(other);
    others.emplace_back(std::max(least_of_pair(ranks, host, other), within[at]), sizes_[at]);
  }
  return std::max(own, seconds_for_room(std::move(others), room));
}

double ReductionTable::least_with(const Ranks& ranks, int host) const {
  Known& known = known_[ranks];
  if (known.least.empty()) {
    known.least.assign(sizes_.size(), -1);
    for (int each = 0; each < host_count(); ++each)
      known.within.push_back(least_of_pair(ranks, each, each));
  }
  double& least = known.least[static_cast<size_t>(host)];
  if (least < 0) least = find_least(ranks, host, known.within);
  return least;
}

double ReductionTable::least_seconds(int low, int high, int host) const {
  double least = kNever;
  for (const Ranks& part : between_turns(low, high))
    least = std::min(least, least_with(part, host));
  return low == high ? least : least * kRoundedDown;
}

double ReductionTable::least_seconds(int low, int high, const std::vector<bool>& hosts) const {
  double least = kNever;
  for (const Ranks& part : between_turns(low, high))
    for (int host = 0; host < host_count(); ++host)
      if (hosts[static_cast<size_t>(host)]) least = std::min(least, least_with(part, host));
  return low == high ? least : least * kRoundedDown;
}

}  // namespace motley
