#pragma once
// What the reduction costs over which hosts, and bounds on it while the hosts are still to be
// found. Nothing is tabulated beforehand, that would be cubic in the fleet: rows of hosts are made
// for the numbers of ranks that a search asks for.

#include <map>
#include <utility>
#include <vector>

#include "planner/costs/cost_model.h"
#include "planner/plain/candidates.h"

namespace motley {

class ReductionTable {
 public:
  ReductionTable(ReductionModel model, const std::vector<Candidate>& candidates);

  int host_count() const { return static_cast<int>(sizes_.size()); }
  int host_of(size_t candidate) const { return host_of_[candidate]; }
  double pair_seconds(int ranks, int a, int b) const;
  /// Over the hosts with a true entry.
  double seconds(int ranks, const std::vector<bool>& hosts) const;
  /// The first pair of these that takes longest.
  std::pair<int, int> slowest_pair(int ranks, const std::vector<bool>& hosts) const;

  /// Bounds for any number of ranks from `low` to `high`, exact where these are equal: on a pair;
  double least_pair_seconds(int low, int high, int a, int b) const;
  /// on seconds(ranks, hosts) whatever the hosts, if they include `host` and have enough candidates
  /// for the ranks (kNever when no hosts have);
  double least_seconds(int low, int high, int host) const;
  /// and if they include any of `hosts`.
  double least_seconds(int low, int high, const std::vector<bool>& hosts) const;

 private:
  /// Numbers of ranks between which the seconds of a pair only rise, or only fall.
  struct Ranks {
    int low, high;
    auto operator<=>(const Ranks&) const = default;
  };
  std::vector<Ranks> between_turns(int low, int high) const;
  double least_of_pair(const Ranks& ranks, int a, int b) const;
  double least_with(const Ranks& ranks, int host) const;
  double find_least(const Ranks& ranks, int host, const std::vector<double>& within) const;
  const ReductionModel::HostPair& pair(int a, int b) const {
    return pairs_[static_cast<size_t>(a) * sizes_.size() + static_cast<size_t>(b)];
  }

  ReductionModel model_;
  std::vector<int> turns_;
  std::vector<int> host_of_;
  std::vector<int> sizes_;  ///< candidates of each host
  std::vector<ReductionModel::HostPair> pairs_;
  /// What was asked of some numbers of ranks, by host.
  struct Known {
    std::vector<double> within;  ///< least seconds of the host and itself
    std::vector<double> least;   ///< with it; negative: not asked yet
  };
  mutable std::map<Ranks, Known> known_;
};

}  // namespace motley
