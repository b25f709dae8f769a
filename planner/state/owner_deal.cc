#include "planner/state/owner_deal.h"

#include <algorithm>
#include <numeric>
#include <optional>

namespace motley {
namespace {

/// Of the first of two bounds, relative.
constexpr double kBetweenBounds = 1e-4;
constexpr double kGoldenSection = 0.6180339887498949;
/// Of what a group holds, what may be left over by rounding; and by how much bounds are raised so
/// that no more is.
constexpr double kLeftOver = 1e-9, kForRounding = 1e-9;

/// Elements that a rank may own within a bound: none up to `start`, then so many more for each unit
/// of it, up to `most`.
struct Room {
  double most = 0, start = 0, rate = kUnlimited;

  bool is_full(double bound) const { return rate == kUnlimited || (bound - start) * rate >= most; }
  double within(double bound) const { return is_full(bound) ? most : (bound - start) * rate; }
};

/// Groups whose elements only these ranks can own, who have no room for all of them.
struct Crowd {
  double elements = 0;
  std::vector<size_t> ranks;
};

/// Shares in elements, [group][holder], where nobody owns more than there is room for.
class Flow {
 public:
  Flow(const std::vector<HeldAlike>& groups, size_t ranks)
      : groups_(groups), given_(ranks, 0.0), room_(ranks, 0.0), held_(ranks) {
    for (size_t g = 0; g < groups.size(); ++g) {
      dealt_.emplace_back(groups[g].holders.size(), 0.0);
      for (size_t i = 0; i < groups[g].holders.size(); ++i) held_[rank(g, i)].push_back(g);
    }
  }

  /// No less than before: what was dealt stays.
  void give_room(const std::vector<Room>& rooms, double bound) {
    for (size_t r = 0; r < rooms.size(); ++r) {
      const double all = std::max(given_[r], rooms[r].within(bound));
      room_[r] += all - given_[r];
      given_[r] = all;
    }
  }

  /// Who is in the way where they cannot own all; goes on from where it found that.
  std::optional<Crowd> deal_all() {
    for (; group_ < groups_.size(); ++group_, left_.reset()) {
      const auto all = static_cast<double>(groups_[group_].elements);
      if (!left_) left_ = all;
      while (*left_ > kLeftOver * all) {
        Crowd crowd;
        const double more = deal_more(group_, *left_, &crowd);
        if (more <= 0) return crowd;
        *left_ -= more;
      }
    }
    return std::nullopt;
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
  /// its holders, who gives as many of another group to one of theirs, and so on. Where there is
  /// none all that could be reached is the crowd.
  double deal_more(size_t from, double wanted, Crowd* crowd) {
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
    for (size_t g = 0; g < groups_.size(); ++g)
      if (seen[g]) crowd->elements += static_cast<double>(groups_[g].elements);
    for (const Step& step : steps) crowd->ranks.push_back(rank(step.group, step.holder));
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
  std::vector<double> given_;              ///< room of each rank
  std::vector<double> room_;               ///< what is left of it
  std::vector<std::vector<size_t>> held_;  ///< groups, by rank
  std::vector<OwnerShares> dealt_;
  size_t group_ = 0;                 ///< all before it are dealt
  std::optional<double> left_ = {};  ///< of its elements
};

/// The least bound, above `low`, that leaves a crowd room. Newton's method: room is concave in it.
std::optional<double> bound_for(const Crowd& crowd, const std::vector<Room>& rooms, double low) {
  for (double bound = low;;) {
    double missing = crowd.elements, rate = 0;
    for (const size_t rank : crowd.ranks) {
      missing -= rooms[rank].within(bound);
      if (!rooms[rank].is_full(bound)) rate += rooms[rank].rate;
    }
    if (missing <= 0) return bound;
    if (rate <= 0) return std::nullopt;
    bound = std::max(bound + missing / rate, bound * (1 + std::numeric_limits<double>::epsilon()));
  }
}

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
    for (size_t r = 0; r < exchanged_.size(); ++r)
      floor_ = std::max(floor_, problem.exchange[r] * exchanged_[r]);
  }

  OwnerDeal run() const {
    const auto least = least_update(kUnlimited);
    if (!least) return {};
    const double update = quickest_update(*least);
    const double exchange = least_exchange(update);
    Flow flow(problem_.groups, problem_.most.size());
    flow.give_room(rooms_by_exchange(update), exchange);
    if (flow.deal_all()) return {};
    return {flow.balanced(), update + exchange};
  }

 private:
  /// By golden section, between the least and the one that leaves the least to exchange.
  double quickest_update(double least) const {
    const double at_least = seconds_within(least);
    if (at_least <= least + floor_ * (1 + kForRounding)) return least;
    double low = least, high = least_update(least_exchange(kUnlimited)).value_or(least);
    double best = least, best_seconds = at_least;
    const auto seconds_at = [&](double update) {
      const double seconds = seconds_within(update);
      if (seconds < best_seconds) best_seconds = seconds, best = update;
      return seconds;
    };
    seconds_at(high);
    double left = high - kGoldenSection * (high - low), right = low + kGoldenSection * (high - low);
    double of_left = seconds_at(left), of_right = seconds_at(right);
    while (high - low > kBetweenBounds * high) {
      if (of_left <= of_right) {
        high = right, right = left, of_right = of_left;
        of_left = seconds_at(left = high - kGoldenSection * (high - low));
      } else {
        low = left, left = right, of_left = of_right;
        of_right = seconds_at(right = low + kGoldenSection * (high - low));
      }
    }
    return best;
  }
  double seconds_within(double update) const { return update + least_exchange(update); }

  /// Of each rank, by the seconds of updates, where exchanges take no more than so many.
  std::vector<Room> rooms_by_update(double exchange) const {
    std::vector<Room> rooms;
    for (size_t r = 0; r < problem_.most.size(); ++r) {
      const double each = problem_.update[r];
      rooms.push_back({std::min(most(r), by_exchange(r).within(exchange)), 0,
                       each > 0 ? 1 / each : kUnlimited});
    }
    return rooms;
  }

  std::vector<Room> rooms_by_exchange(double update) const {
    std::vector<Room> rooms;
    for (size_t r = 0; r < problem_.most.size(); ++r) {
      Room& room = rooms.emplace_back(by_exchange(r));
      if (problem_.update[r] > 0) room.most = std::min(room.most, update / problem_.update[r]);
    }
    return rooms;
  }

  double most(size_t rank) const { return std::clamp(problem_.most[rank], 0.0, total_); }
  Room by_exchange(size_t rank) const {
    const double each = problem_.exchange[rank] * beyond_second_[rank];
    return {most(rank), problem_.exchange[rank] * exchanged_[rank],
            each > 0 ? 1 / each : kUnlimited};
  }

  /// Nothing where no bound leaves a deal possible. Each that does not has a crowd, and the next is
  /// the least that leaves that one room: the last one is the least of all.
  std::optional<double> least_bound(const std::vector<Room>& rooms, double low) const {
    Flow flow(problem_.groups, rooms.size());
    for (double bound = low;;) {
      flow.give_room(rooms, bound);
      const auto crowd = flow.deal_all();
      if (!crowd) return bound;
      const auto next = bound_for(*crowd, rooms, bound);
      if (!next) return std::nullopt;
      bound = *next * (1 + kForRounding);
    }
  }
  std::optional<double> least_update(double exchange) const {
    return least_bound(rooms_by_update(exchange), 0);
  }
  /// Of an update within which there is a deal.
  double least_exchange(double update) const {
    return least_bound(rooms_by_exchange(update), floor_).value_or(kUnlimited);
  }

  const OwnerProblem& problem_;
  double total_;                       ///< elements
  std::vector<double> exchanged_;      ///< elements held with others, by rank
  std::vector<double> beyond_second_;  ///< holders, at most
  double floor_ = 0;                   ///< seconds of exchanging what is held, whoever owns it
};

}  // namespace

OwnerDeal best_owners(const OwnerProblem& problem) { return BestOwners(problem).run(); }

}  // namespace motley
