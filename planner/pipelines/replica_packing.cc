#include "planner/pipelines/replica_packing.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "planner/pipelines/host_packing.h"
#include "planner/pipelines/packing_bound.h"
#include "planner/pipelines/packing_states.h"
#include "planner/pipelines/useful_sets.h"
#include "planner/pipelines/whole_packing.h"

namespace motley {
namespace {

constexpr double kMostStates = 600;
constexpr int kMostReplicas = 16;  ///< each number is looked at by itself
/// Packings in parts that are made to find a whole one.
constexpr int kMostFractions = 60;

/// Bounds that are looked at are first so much above what nothing is below, then further and
/// further.
constexpr double kFirstStep = 1.2;

/// The least seconds within which `within` finds a packing, and the packing: nothing is quicker
/// than `low`, and slower ones than `high` are of no interest. Empty where none is found.
template <class Within>
Packing soonest(double precision, double low, double high, Within within, double* least) {
  double reach = low, step = kFirstStep;
  Packing best;
  for (high = std::min(high, kNobodyWaits); best.empty() && reach < high; step *= step) {
    low = reach;
    reach = std::min(high, reach * step);
    best = within(reach);
  }
  if (best.empty()) {
    *least = high;
    return best;
  }
  while (reach - low > precision * reach) {
    const double middle = low + (reach - low) / 2;
    Packing packing = within(middle);
    if (packing.empty()) {
      low = middle;
    } else {
      reach = middle;
      best = std::move(packing);
    }
  }
  *least = low;
  return best;
}

/// What each set computes in time: whole grains, and with the short one among them.
struct Able {
  std::vector<int> whole, shorted;
};

/// Besides one of each stage.
int more_of(const ReplicaSets& sets, size_t set) {
  return number_of(sets.devices(set)) - sets.stages(set);
}

/// At most.
Able able_within(const PackingProblem& problem, ReplicaSets& sets, double seconds) {
  Able able{.whole = std::vector<int>(sets.count(), 0), .shorted = {}};
  const auto grains = [&](size_t set, int missing) {
    return sets.grains_at_most(set, {seconds, problem.grain, missing, problem.grains});
  };
  if (problem.missing > 0) able.shorted = able.whole;
  for (size_t set = 0; set < sets.count(); ++set) {
    if (more_of(sets, set) > problem.most_more) continue;
    able.whole[set] = grains(set, 0);
    if (problem.missing > 0) able.shorted[set] = grains(set, problem.missing);
  }
  return able;
}

/// The quickest single replica.
struct Single {
  double seconds = kNever;  ///< kNever: none can compute everything
  size_t set = 0;
};
Single quickest_single(const PackingProblem& problem, ReplicaSets& sets) {
  const int samples = problem.grains * problem.grain - problem.missing;
  Single quickest;
  for (size_t set = sets.count(); set-- > 0;) {  // the quick ones first
    if (number_of(sets.devices(set)) > problem.most_devices) continue;
    if (const int more = more_of(sets, set); more < problem.least_more || more > problem.most_more)
      continue;
    if (sets.seconds_at_least(set, samples) >= quickest.seconds) continue;
    const double seconds = sets.seconds(set, samples);
    if (seconds < quickest.seconds) quickest = {seconds, set};
  }
  return quickest;
}

/// Slower packings are of no use: a single replica would do, unless their number is given.
double most_seconds(const PackingProblem& problem, ReplicaSets& sets) {
  const bool alone = !problem.is_number_given() || problem.most_replicas == 1;
  return std::min(alone ? quickest_single(problem, sets).seconds : kNever, problem.limit);
}

std::vector<GroupCounts> devices_of(const ReplicaSets& sets) {
  std::vector<GroupCounts> devices;
  for (size_t set = 0; set < sets.count(); ++set) devices.push_back(sets.devices(set));
  return devices;
}

bool is_more_limited(const PackingProblem& problem) {
  return problem.least_more > 0 || problem.most_more < number_of(problem.devices);
}

/// Devices of each group and, where it matters, those besides one of each stage.
GroupCounts with_more(const PackingProblem& problem) {
  GroupCounts there = problem.devices;
  if (is_more_limited(problem))
    there.push_back(std::min(problem.most_more, number_of(problem.devices)));
  return there;
}

std::vector<GroupCounts> used_by(const PackingProblem& problem, const ReplicaSets& sets) {
  std::vector<GroupCounts> used = devices_of(sets);
  for (size_t set = 0; set < used.size() && is_more_limited(problem); ++set)
    used[set].push_back(more_of(sets, set));
  return used;
}

/// All packings of few devices.
class PackingSearch {
 public:
  PackingSearch(const PackingProblem& problem, ReplicaSets& sets)
      : problem_(problem),
        sets_(sets),
        states_(with_more(problem), used_by(problem, sets)),
        useful_(problem.devices, devices_of(sets)) {}

  Packings run(double least) {
    const double most = most_seconds(problem_, sets_);
    Packings packings;
    for (int replicas = problem_.least_replicas; replicas <= problem_.most_replicas; ++replicas) {
      double own = kNever;
      Packing packing = replicas == 1
                            ? single(&own)
                            : soonest(
                                  problem_.precision, least, most,
                                  [&](double seconds) { return within(seconds, replicas); }, &own);
      packings.least_seconds = std::min(packings.least_seconds, own);
      packings.least_of_replicas.push_back(own);
      if (!packing.empty()) packings.found.push_back(std::move(packing));
    }
    return packings;
  }

 private:
  /// The last replica of a packing and what is left to the others.
  struct Best {
    int grains = -1;  ///< of all together; -1: there is no such packing
    uint32_t set = 0;
    uint32_t before = 0;  ///< state of the others
  };
  using Row = std::vector<Best>;
  struct Within {
    Able able;
    std::vector<bool> is_sure;  ///< of each set, or it may be able to do less
    std::vector<Row> rows;
  };
  /// States are the devices used, and those besides one of each stage, by index, and whether the
  /// short grain is among the grains.
  static size_t state(size_t index, bool shorted) { return 2 * index + (shorted ? 1 : 0); }

  Packing single(double* seconds) {
    const Single quickest = quickest_single(problem_, sets_);
    *seconds = quickest.seconds;
    return quickest.seconds < kNever && quickest.seconds <= problem_.limit ? Packing{quickest.set}
                                                                           : Packing{};
  }

  Packing within(double seconds, int replicas) {
    if (!learn(seconds, replicas)) return {};
    const std::vector<Row>& rows = rows_within(seconds, replicas);
    std::optional<size_t> found;
    int most = 0;
    for (size_t i = 0; i < states_.size(); ++i) {
      const size_t last = state(i, problem_.missing > 0);
      const GroupCounts& used = states_.used(i);
      const int devices =
          std::accumulate(used.begin(), used.begin() + std::ssize(problem_.devices), 0);
      const int grains = rows[static_cast<size_t>(replicas)][last].grains;
      if (grains < problem_.grains || devices > problem_.most_devices) continue;
      if (is_more_limited(problem_) && used.back() < problem_.least_more) continue;
      if (!found || grains > most) {
        found = last;
        most = grains;
      }
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

  /// Row r: the best of r replicas in each state. Searches for different numbers of replicas begin
  /// with the same bounds.
  const std::vector<Row>& rows_within(double seconds, int replicas) {
    Within& known = known_[seconds];
    if (known.rows.empty()) {
      known.rows.emplace_back(2 * states_.size());
      known.rows[0][state(0, false)].grains = 0;
    }
    while (static_cast<int>(known.rows.size()) <= replicas)
      known.rows.push_back(one_more(known.rows.back(), known.able));
    return known.rows;
  }

  /// What the sets of packings are able to do, the small ones first, as what is known of these
  /// leaves fewer others; whether there may be any packing.
  bool learn(double seconds, int replicas) {
    Within& known = known_[seconds];
    if (known.able.whole.empty()) {
      known.able = able_within(problem_, sets_, seconds);
      known.is_sure.resize(sets_.count(), false);
    }
    while (true) {
      std::vector<int> most = known.able.whole;
      for (size_t set = 0; set < known.able.shorted.size(); ++set)
        most[set] = std::max(most[set], known.able.shorted[set]);
      const std::vector<size_t> useful = useful_.of(most, replicas, problem_.grains);
      if (useful.empty()) return false;
      int size = std::numeric_limits<int>::max();
      for (const size_t set : useful)
        if (!known.is_sure[set]) size = std::min(size, number_of(sets_.devices(set)));
      bool any = false;
      for (const size_t set : useful)
        if (!known.is_sure[set] && number_of(sets_.devices(set)) == size)
          any = learn(set, seconds, &known) || any;
      if (size == std::numeric_limits<int>::max()) return true;
      if (any) known.rows.clear();
    }
  }

  /// Whether it is able to do less.
  bool learn(size_t set, double seconds, Within* known) {
    bool less = false;
    known->is_sure[set] = true;
    for (std::vector<int>* able : {&known->able.whole, &known->able.shorted}) {
      if (able->empty()) continue;
      const int missing = able == &known->able.shorted ? problem_.missing : 0;
      const int own = sets_.grains_within(set, {seconds, problem_.grain, missing, problem_.grains});
      less = less || own < (*able)[set];
      (*able)[set] = std::min((*able)[set], own);
    }
    return less;
  }

  Row one_more(const Row& before, const Able& able) const {
    Row row(before.size());
    const auto offer = [&](size_t from, size_t to, int grains, size_t set) {
      if (before[from].grains < 0 || grains == 0) return;
      if (before[from].grains + grains > row[to].grains)
        row[to] = {before[from].grains + grains, static_cast<uint32_t>(set),
                   static_cast<uint32_t>(from)};
    };
    const bool has_short = problem_.missing > 0;
    for (size_t set = 0; set < sets_.count(); ++set) {
      if (able.whole[set] == 0 && (!has_short || able.shorted[set] == 0)) continue;
      for (const size_t i : states_.room(set)) {
        const size_t to = i + states_.step(set);
        offer(state(i, false), state(to, false), able.whole[set], set);
        if (!has_short) continue;
        offer(state(i, true), state(to, true), able.whole[set], set);
        offer(state(i, false), state(to, true), able.shorted[set], set);
      }
    }
    return row;
  }

  const PackingProblem& problem_;
  ReplicaSets& sets_;
  PackingStates states_;
  UsefulSets useful_;
  std::map<double, Within> known_;  ///< by seconds
};

/// Of so many devices that packings cannot be looked at one by one.
class ManyDevices {
 public:
  ManyDevices(const PackingProblem& problem, ReplicaSets& sets)
      : problem_(problem), sets_(sets), enough_(problem.grains) {
    for (size_t set = 0; set < sets.count(); ++set) {
      needs_.push_back(sets.devices(set));
      const int devices = std::accumulate(needs_.back().begin(), needs_.back().end(), 0);
      needs_.back().push_back(devices);                       // of all that may be used
      needs_.back().push_back(sets.stages(set));              // of all stages
      needs_.back().push_back(more_of(sets, set));            // besides one of each
      needs_.back().push_back(1);                             // of all replicas
      needs_.back().push_back(sets.stages(set) > 1 ? 1 : 0);  // of those of several stages
    }
    if (problem.only_least || !problem.is_number_given()) return;
    constexpr int64_t kMost = std::numeric_limits<int>::max() / 2;
    of_a_replica_ =
        static_cast<int>(std::min(int64_t{problem.grains} * problem.most_replicas, kMost));
    enough_ += int64_t{of_a_replica_} * problem.most_replicas;
  }

  Packings run(double least) {
    Packings packings;
    // One look is enough where nothing is found below the limit.
    if (problem_.only_least && problem_.limit < kNobodyWaits && problem_.limit > least &&
        sets_in_parts(problem_.limit).empty()) {
      packings.least_seconds = problem_.limit;
      return packings;
    }
    const double most = most_seconds(problem_, sets_);
    // A packing in parts has no deal: its sets stand for it.
    Packing parts = soonest(
        problem_.precision, least, most, [&](double seconds) { return sets_in_parts(seconds); },
        &packings.least_seconds);
    if (packings.least_seconds >= kNobodyWaits) return packings;
    if (problem_.only_least) {
      packings.found.push_back(std::move(parts));
      return packings;
    }
    double found = 0;
    Packing packing = soonest(
        problem_.precision, packings.least_seconds, most,
        [&](double seconds) { return within(seconds); }, &found);
    if (!packing.empty()) packings.found.push_back(std::move(packing));
    add_by_hosts(packings.least_seconds, most, &packings);
    add_alike(most, &packings);
    return packings;
  }

 private:
  /// Where no replica goes over several hosts, activations take the quick ways.
  void add_by_hosts(double least, double most, Packings* packings) const {
    if (problem_.hosts.size() < 2 || leaves_out()) return;
    const HostPacking hosts(problem_.hosts, devices_of(sets_));
    double found = 0;
    Packing packing = soonest(
        problem_.precision, least, most,
        [&](double seconds) {
          return hosts.pack(grains_of_hosts(seconds), problem_.grains, problem_.most_replicas);
        },
        &found);
    const int replicas = static_cast<int>(packing.size());
    if (replicas > 0 && (!problem_.is_number_given() || replicas == problem_.most_replicas))
      packings->found.push_back(std::move(packing));
  }

  /// All devices in replicas of one set: hosts of a type each hold the same of all replicas then,
  /// so that they have little to exchange. What is left over, less than a replica, is one more, or
  /// unused.
  void add_alike(double most, Packings* packings) const {
    if (leaves_out()) return;
    const double enough = std::min(most, kNobodyWaits);
    for (size_t set = 0; set < sets_.count(); ++set) {
      const GroupCounts& devices = sets_.devices(set);
      const int copies = copies_of(devices);
      GroupCounts left = problem_.devices;
      for (size_t group = 0; group < left.size(); ++group) left[group] -= copies * devices[group];
      if (number_of(devices) < 2 || number_of(left) >= number_of(devices)) continue;
      Packing alike(static_cast<size_t>(copies), set);
      for (size_t rest = 0; number_of(left) > 0 && rest < sets_.count(); ++rest) {
        if (sets_.devices(rest) != left) continue;
        Packing with_rest = alike;
        with_rest.push_back(rest);
        add_if_enough(std::move(with_rest), enough, packings);
      }
      add_if_enough(std::move(alike), enough, packings);
    }
  }

  int copies_of(const GroupCounts& set) const {
    int copies = problem_.most_devices;
    for (size_t group = 0; group < set.size(); ++group)
      if (set[group] > 0) copies = std::min(copies, problem_.devices[group] / set[group]);
    return copies;
  }

  /// Where its replicas compute all grains within these seconds, each of them one at least.
  void add_if_enough(Packing packing, double seconds, Packings* packings) const {
    const int replicas = static_cast<int>(packing.size());
    if (replicas < problem_.least_replicas ||
        replicas > std::min(problem_.most_replicas, problem_.grains) ||
        (problem_.is_number_given() && replicas != problem_.most_replicas))
      return;
    int64_t grains = 0;
    for (const size_t set : packing) {
      const int own = sets_.grains_within(set, {seconds, problem_.grain, 0, problem_.grains});
      if (own == 0) return;
      grains += own;
    }
    if (grains >= problem_.grains) packings->found.push_back(std::move(packing));
  }

  /// Of sets for which a host has room; of others none.
  std::vector<int> grains_of_hosts(double seconds) const {
    std::vector<int> grains;
    for (size_t set = 0; set < sets_.count(); ++set) {
      const bool has_room =
          std::any_of(problem_.hosts.begin(), problem_.hosts.end(), [&](const GroupCounts& host) {
            return std::equal(host.begin(), host.end(), sets_.devices(set).begin(),
                              std::greater_equal<>());
          });
      grains.push_back(
          has_room ? sets_.grains_within(set, {seconds, problem_.grain, 0, problem_.grains}) : 0);
    }
    return grains;
  }

  bool leaves_out() const {
    return problem_.most_devices <
           std::accumulate(problem_.devices.begin(), problem_.devices.end(), 0);
  }

  GroupCounts there() const {
    GroupCounts there = problem_.devices;
    there.push_back(problem_.most_devices);
    there.push_back(problem_.most_devices - problem_.least_more);
    there.push_back(std::min(problem_.most_more, problem_.most_devices));
    there.push_back(problem_.most_replicas);
    there.push_back(std::max(0, problem_.most_replicas - problem_.single_stages));
    return there;
  }

  /// Within these seconds. The short grain counts as if every replica had it: a bound all the same.
  GrainLimit limit(double seconds) const {
    return {seconds, problem_.grain, problem_.missing, problem_.grains};
  }

  /// In parts: of sets that have any, grains are as many as are computed, of others no less.
  FractionalPacking in_parts(double seconds) const {
    std::vector<int> worth;
    for (size_t set = 0; set < needs_.size(); ++set)
      worth.push_back(sets_.grains_at_most(set, limit(seconds)));
    FractionalPacking packing = pack_fractions(needs_, worth, there());
    while (is_enough(packing) && learn(seconds, problem_.missing, packing.copies, &worth))
      packing = pack_fractions(needs_, worth, there());
    return packing;
  }

  /// How much those of which there are copies are worth; whether any is worth less.
  template <class Copies>
  bool learn(double seconds, int missing, const Copies& copies, std::vector<int>* worth) const {
    bool less = false;
    for (size_t set = 0; set < copies.size(); ++set) {
      if (copies[set] <= 0) continue;
      const int known =
          sets_.grains_within(set, {seconds, problem_.grain, missing, problem_.grains});
      less = less || known < (*worth)[set];
      (*worth)[set] = known;
    }
    return less;
  }

  bool is_enough(const FractionalPacking& packing) const {
    return packing.worth >= problem_.grains - 1e-6;
  }

  /// Those that there are parts of, if these are enough.
  Packing sets_in_parts(double seconds) const {
    const FractionalPacking fractions = in_parts(seconds);
    Packing packing;
    for (size_t set = 0; set < needs_.size() && is_enough(fractions); ++set)
      if (fractions.copies[set] > 0) packing.push_back(set);
    return packing;
  }

  /// No more sets than are needed.
  Packing within(double seconds) const {
    if (!is_enough(in_parts(seconds))) return {};  // which sets are good for it is known then
    std::vector<int> grains, copies;
    for (size_t set = 0; set < needs_.size(); ++set)
      grains.push_back(sets_.grains_at_most(set, {seconds, problem_.grain, 0, problem_.grains}));
    do {
      copies = pack_whole(needs_, wanted(grains), there(), enough_, kMostFractions);
    } while (learn(seconds, 0, copies, &grains));
    Packing packing;
    int dealt = 0;
    for (size_t set = 0; set < copies.size(); ++set)
      for (int copy = 0; copy < copies[set] && lacks(dealt, packing); ++copy) {
        packing.push_back(set);
        dealt += grains[set];
      }
    return static_cast<int>(packing.size()) <= problem_.grains ? packing : Packing{};
  }

  /// What sets count for: where the number of replicas is given, first of all that they are many.
  std::vector<int> wanted(std::vector<int> grains) const {
    for (int& own : grains)
      if (own > 0) own += of_a_replica_;
    return grains;
  }

  bool lacks(int dealt, const Packing& packing) const {
    return dealt < problem_.grains ||
           (of_a_replica_ > 0 && static_cast<int>(packing.size()) < problem_.least_replicas);
  }

  const PackingProblem& problem_;
  ReplicaSets& sets_;
  int of_a_replica_ = 0;  ///< worth of one besides what it computes
  int64_t enough_;
  std::vector<std::vector<int>> needs_;
};

}  // namespace

int ReplicaSets::stages(size_t set) const { return number_of(devices(set)); }

bool few_enough_to_enumerate(const GroupCounts& devices) {
  double states = 1;
  for (const int count : devices) states *= count + 1;
  return states <= kMostStates &&
         std::accumulate(devices.begin(), devices.end(), 0) <= kMostReplicas;
}

Packings best_packings(const PackingProblem& problem, ReplicaSets& sets, double least_seconds) {
  if (few_enough_to_enumerate(problem.devices))
    return PackingSearch(problem, sets).run(least_seconds);
  return ManyDevices(problem, sets).run(least_seconds);
}

}  // namespace motley
