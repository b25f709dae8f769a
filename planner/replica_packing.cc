#include "planner/replica_packing.h"

#include <algorithm>
#include <numeric>
#include <optional>

namespace motley {
namespace {

constexpr double kPrecision = 1e-6;

/// Counts of devices as one number, digit by digit.
class CountIndex {
 public:
  explicit CountIndex(const GroupCounts& most) : most_(most) {
    for (const int count : most) {
      steps_.push_back(size_);
      size_ *= static_cast<size_t>(count) + 1;
    }
  }

  size_t size() const { return size_; }
  size_t of(const GroupCounts& counts) const {
    size_t index = 0;
    for (size_t i = 0; i < counts.size(); ++i) index += steps_[i] * static_cast<size_t>(counts[i]);
    return index;
  }
  GroupCounts counts(size_t index) const {
    GroupCounts counts;
    for (size_t i = 0; i < most_.size(); ++i)
      counts.push_back(static_cast<int>(index / steps_[i] % (static_cast<size_t>(most_[i]) + 1)));
    return counts;
  }

 private:
  const GroupCounts& most_;
  std::vector<size_t> steps_;
  size_t size_ = 1;
};

class PackingSearch {
 public:
  PackingSearch(const PackingProblem& problem, std::vector<ReplicaDesigns>& sets)
      : problem_(problem), sets_(sets), index_(problem.devices) {
    for (size_t i = 0; i < index_.size(); ++i) counts_.push_back(index_.counts(i));
    for (const ReplicaDesigns& set : sets) set_index_.push_back(index_.of(set.devices()));
  }

  std::vector<Packing> run(double least) {
    double most = kNever;  // of one replica
    for (ReplicaDesigns& set : sets_)
      if (fits(set.devices(), problem_.devices))
        most = std::min(most, set.seconds(problem_.grains * problem_.grain - problem_.missing));
    std::vector<Packing> best(static_cast<size_t>(problem_.most_replicas));
    for (int replicas = 1; replicas <= problem_.most_replicas; ++replicas)
      best[static_cast<size_t>(replicas - 1)] = soonest(replicas, least, most);
    return best;
  }

 private:
  /// The last replica of a packing and what is left to the others.
  struct Best {
    int grains = -1;  ///< of all together; -1: there is no such packing
    size_t set = 0;
    size_t before = 0;  ///< state of the others
  };
  /// What each set computes in time: whole grains, and with the short one among them.
  struct Able {
    std::vector<int> whole, shorted;
  };

  static bool fits(const GroupCounts& wanted, const GroupCounts& there) {
    for (size_t i = 0; i < wanted.size(); ++i)
      if (wanted[i] > there[i]) return false;
    return true;
  }

  /// Where nothing is known of a single replica, a bound is looked for by doubling.
  Packing soonest(int replicas, double low, double high) {
    Packing best;
    if (high == kNever) {
      high = low;
      for (int doubled = 0; doubled < 60 && best.empty(); ++doubled)
        best = within(high *= 2, replicas);
      if (best.empty()) return best;
    }
    while (high - low > kPrecision * high) {
      const double middle = low + (high - low) / 2;
      Packing packing = within(middle, replicas);
      if (packing.empty()) {
        low = middle;
      } else {
        high = middle;
        best = std::move(packing);
      }
    }
    return best.empty() ? within(high * (1 + kPrecision), replicas) : best;
  }

  /// States are the devices used, by index, and whether the short grain is among the grains.
  static size_t state(size_t index, bool shorted) { return 2 * index + (shorted ? 1 : 0); }

  Packing within(double seconds, int replicas) {
    Able able;
    for (ReplicaDesigns& set : sets_) {
      able.whole.push_back(set.grains_within(seconds, problem_.grain, 0, problem_.grains));
      if (problem_.missing == 0) continue;
      able.shorted.push_back(
          set.grains_within(seconds, problem_.grain, problem_.missing, problem_.grains));
    }
    std::vector<std::vector<Best>> rows{std::vector<Best>(2 * index_.size())};
    rows[0][state(0, false)].grains = 0;
    for (int used = 1; used <= replicas; ++used) rows.push_back(one_more(rows.back(), able));
    std::optional<size_t> found;
    for (size_t i = 0; i < index_.size(); ++i) {
      const size_t last = state(i, problem_.missing > 0);
      const int devices = std::accumulate(counts_[i].begin(), counts_[i].end(), 0);
      const int grains = rows.back()[last].grains;
      if (grains < problem_.grains || devices > problem_.most_devices) continue;
      if (!found || grains > rows.back()[*found].grains) found = last;
    }
    Packing packing;
    if (!found) return packing;
    for (int used = replicas; used > 0; --used) {
      const Best& step = rows[static_cast<size_t>(used)][*found];
      packing.push_back(step.set);
      found = step.before;
    }
    std::sort(packing.begin(), packing.end());
    return packing;
  }

  std::vector<Best> one_more(const std::vector<Best>& before, const Able& able) const {
    std::vector<Best> row(before.size());
    const auto offer = [&](size_t from, size_t to, int grains, size_t set) {
      if (before[from].grains < 0 || grains == 0) return;
      if (before[from].grains + grains > row[to].grains)
        row[to] = {before[from].grains + grains, set, from};
    };
    for (size_t i = 0; i < index_.size(); ++i)
      for (size_t set = 0; set < sets_.size(); ++set) {
        if (!room(counts_[i], sets_[set].devices())) continue;
        const size_t to = i + set_index_[set];
        for (const bool shorted : {false, true})
          offer(state(i, shorted), state(to, shorted), able.whole[set], set);
        if (problem_.missing > 0) offer(state(i, false), state(to, true), able.shorted[set], set);
      }
    return row;
  }

  bool room(const GroupCounts& used, const GroupCounts& more) const {
    for (size_t i = 0; i < used.size(); ++i)
      if (used[i] + more[i] > problem_.devices[i]) return false;
    return true;
  }

  const PackingProblem& problem_;
  std::vector<ReplicaDesigns>& sets_;
  CountIndex index_;
  std::vector<GroupCounts> counts_;  ///< by index
  std::vector<size_t> set_index_;
};

}  // namespace

std::vector<Packing> best_packings(const PackingProblem& problem, std::vector<ReplicaDesigns>& sets,
                                   double least_seconds) {
  return PackingSearch(problem, sets).run(least_seconds);
}

}  // namespace motley
