#include "planner/state/owner_deal.h"

#include <algorithm>
#include <numeric>
#include <optional>

namespace motley {
namespace {

/// Of a bound: halvings, and thirds taken off.
constexpr int kHalvings = 50;
constexpr int kThirds = 60;
/// Of bounds that are looked for, relative: of one alone, and of the first of two.
constexpr double kExactly = 1e-7, kNearly = 1e-4;
/// Of what a group holds, what may be left over by rounding.
constexpr double kLeftOver = 1e-9;

/// Shares in elements, [group][holder], where nobody owns more than `most`.
class Flow {
 public:
  Flow(const std::vector<HeldAlike>& groups, std::vector<double> most)
      : groups_(groups), room_(std::move(most)), held_(room_.size()) {
    for (size_t g = 0; g < groups.size(); ++g) {
      dealt_.emplace_back(groups[g].holders.size(), 0.0);
      for (size_t i = 0; i < groups[g].holders.size(); ++i) held_[rank(g, i)].push_back(g);
    }
  }

  /// False where they cannot own all.
  bool deal_all() {
    for (size_t g = 0; g < groups_.size(); ++g) {
      const auto all = static_cast<double>(groups_[g].elements);
      double left = all;
      while (left > kLeftOver * all) {
        const double more = deal_more(g, left);
        if (more <= 0) return false;
        left -= more;
      }
    }
    return true;
  }

  /// In each group in proportion to what its holders still have room for.
  std::vector<OwnerShares> balanced() {
    for (size_t g = 0; g < groups_.size(); ++g) {
      std::vector<double>& dealt = dealt_[g];
      double room = 0;
      for (size_t i = 0; i < dealt.size(); ++i) room += room_[rank(g, i)] += dealt[i];
      const auto all = static_cast<double>(groups_[g].elements);
      for (size_t i = 0; i < dealt.size(); ++i) {
        const double own = room_[rank(g, i)];
        dealt[i] = std::min(own, all * (own / room));
        room_[rank(g, i)] = own - dealt[i];
      }
    }
    return dealt_;
  }

 private:
  size_t rank(size_t group, size_t holder) const {
    return static_cast<size_t>(groups_[group].holders[holder].value());
  }

  /// To this holder of the group, as elements of the group before it move over to others.
  struct Step {
    size_t group = 0, holder = 0;
    std::optional<size_t> before = {};  ///< number of the step by which its group was reached
  };

  /// At most `wanted` of the group's elements along the shortest way to a rank with room: to one of
  /// its holders, who gives as many of another group to one of theirs, and so on.
  double deal_more(size_t from, double wanted) {
    std::vector<Step> steps;
    std::vector<bool> seen(groups_.size(), false), reached(room_.size(), false);
    const auto open = [&](size_t group, std::optional<size_t> before) {
      seen[group] = true;
      for (size_t i = 0; i < groups_[group].holders.size(); ++i) {
        if (reached[rank(group, i)]) continue;
        reached[rank(group, i)] = true;
        steps.push_back({group, i, before});
      }
    };
    open(from, {});
    for (size_t s = 0; s < steps.size(); ++s) {
      const size_t here = rank(steps[s].group, steps[s].holder);
      if (room_[here] > 0) return push(steps, s, std::min(wanted, room_[here]));
      for (const size_t g : held_[here])
        if (!seen[g] && *share_of(g, here) > 0) open(g, s);
    }
    return 0;
  }

  /// Of the group to the rank, which holds some of it.
  double* share_of(size_t group, size_t to) {
    const auto& holders = groups_[group].holders;
    const auto at = std::lower_bound(holders.begin(), holders.end(), Rank(static_cast<int>(to)));
    return &dealt_[group][static_cast<size_t>(at - holders.begin())];
  }

  double push(const std::vector<Step>& steps, size_t last, double amount) {
    const auto given_up = [&](const Step& step) -> double& {  // of its group by the rank before
      const Step& before = steps[*step.before];
      return *share_of(step.group, rank(before.group, before.holder));
    };
    for (size_t s = last; steps[s].before; s = *steps[s].before)
      amount = std::min(amount, given_up(steps[s]));
    room_[rank(steps[last].group, steps[last].holder)] -= amount;
    for (size_t s = last;; s = *steps[s].before) {
      dealt_[steps[s].group][steps[s].holder] += amount;
      if (!steps[s].before) return amount;
      given_up(steps[s]) -= amount;
    }
  }

  const std::vector<HeldAlike>& groups_;
  std::vector<double> room_;               ///< of each rank
  std::vector<std::vector<size_t>> held_;  ///< groups, by rank
  std::vector<OwnerShares> dealt_;
};

class BestOwners {
 public:
  explicit BestOwners(const OwnerProblem& problem)
      : problem_(problem),
        total_(0),
        exchanged_(problem.most.size(), 0.0),
        beyond_second_(problem.most.size(), 0.0) {
    for (const HeldAlike& group : problem.groups) {
      total_ += static_cast<double>(group.elements);
      if (group.holders.size() < 2) continue;
      for (const Rank rank : group.holders) {
        const auto r = static_cast<size_t>(rank.value());
        exchanged_[r] += static_cast<double>(group.elements);
        beyond_second_[r] =
            std::max(beyond_second_[r], static_cast<double>(group.holders.size()) - 2);
      }
    }
  }

  OwnerDeal run() const {
    if (!possible(kUnlimited, kUnlimited)) return {};
    const double least = least_update(kUnlimited);
    double low = least, high = least_update(least_exchange(kUnlimited));
    for (int i = 0; i < kThirds && high - low > kNearly * high; ++i) {
      const double third = (high - low) / 3;
      if (seconds_within(low + third) <= seconds_within(high - third))
        high -= third;
      else
        low += third;
    }
    // Whatever rounding has done to what lies between, its end can be dealt.
    const double update = seconds_within(least) <= seconds_within(high) ? least : high;
    const double exchange = least_exchange(update);
    Flow flow(problem_.groups, rooms(update, exchange));
    if (!flow.deal_all()) return {};
    return {flow.balanced(), update + exchange};
  }

 private:
  double seconds_within(double update) const { return update + least_exchange(update); }

  /// Elements that each rank may own within these bounds.
  std::vector<double> rooms(double update, double exchange) const {
    std::vector<double> rooms = problem_.most;
    for (size_t r = 0; r < rooms.size(); ++r) {
      rooms[r] = std::max(0.0, rooms[r]);
      if (problem_.update[r] > 0) rooms[r] = std::min(rooms[r], update / problem_.update[r]);
      const double more = problem_.exchange[r] * beyond_second_[r];
      if (more > 0)
        rooms[r] = std::min(rooms[r],
                            std::max(0.0, exchange - problem_.exchange[r] * exchanged_[r]) / more);
      rooms[r] = std::min(rooms[r], total_);
    }
    return rooms;
  }

  bool possible(double update, double exchange) const {
    return Flow(problem_.groups, rooms(update, exchange)).deal_all();
  }

  /// The least bound that leaves a deal possible, which none at all does.
  template <class Possible>
  static double least_bound(double enough, const Possible& possible) {
    double low = 0, high = enough;
    for (int i = 0; i < kHalvings && high - low > kExactly * high; ++i) {
      const double middle = low + (high - low) / 2;
      (possible(middle) ? high : low) = middle;
    }
    return high;
  }

  double least_update(double exchange) const {
    const double slowest = *std::max_element(problem_.update.begin(), problem_.update.end());
    return least_bound(slowest * total_, [&](double bound) { return possible(bound, exchange); });
  }

  double least_exchange(double update) const {
    double enough = 0, floor = 0;
    for (size_t r = 0; r < exchanged_.size(); ++r) {
      floor = std::max(floor, problem_.exchange[r] * exchanged_[r]);
      enough =
          std::max(enough, problem_.exchange[r] * (exchanged_[r] + beyond_second_[r] * total_));
    }
    return floor +
           least_bound(enough - floor, [&](double more) { return possible(update, floor + more); });
  }

  const OwnerProblem& problem_;
  double total_;                       ///< elements
  std::vector<double> exchanged_;      ///< elements held with others, by rank
  std::vector<double> beyond_second_;  ///< holders, at most
};

}  // namespace

OwnerDeal best_owners(const OwnerProblem& problem) { return BestOwners(problem).run(); }

}  // namespace motley
