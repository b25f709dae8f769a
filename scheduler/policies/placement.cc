// One greedy pass over offers in the order of their ranks.

#include <algorithm>
#include <limits>
#include <optional>
#include <queue>
#include <tuple>
#include <utility>

#include "scheduler/policies/policy.h"

namespace motley {
namespace {

void move(const PoolCounts& counts, int sign, PoolCounts* to) {
  for (size_t pool = 0; pool < counts.size(); ++pool) (*to)[pool] += sign * counts[pool];
}

/// Devices for a job, and what the policy thinks of that.
struct Bid {
  int priority = 0;
  bool waits = false;  ///< and may not stop those that run
  OfferRank rank;
  size_t job = 0;
  size_t alternative = 0;
  Offer offer;
  size_t pool = 0;     ///< all of one; unless
  PoolCounts devices;  ///< these are given: what it holds, or a mix of what was free
  bool mixed = false;
  bool more = false;  ///< one of `pool` for a job that has been given some

  PoolCounts counts(size_t pools) const {
    if (!devices.empty()) return devices;
    PoolCounts counts(pools, 0);
    counts[pool] = offer.devices;
    return counts;
  }
};

struct GoesAfter {
  bool operator()(const Bid& a, const Bid& b) const { return key(a) > key(b); }
  static std::tuple<int, bool, int, double, size_t, size_t, double, size_t> key(const Bid& bid) {
    return {-bid.priority, bid.waits,       bid.rank.tier,   bid.rank.value,
            bid.job,       bid.alternative, -bid.offer.rate, bid.pool};
  }
};

class Placer {
 public:
  Placer(Policy& policy, const QueueView& view)
      : policy_(policy),
        view_(view),
        taken_(view.jobs.size()),
        bids_of_(view.jobs.size(), 0),
        mixed_(view.jobs.size()) {
    for (const Pool& pool : view.pools) free_.push_back(pool.devices);
    for (const JobView& job : view.jobs) lowest_ = std::min(lowest_, job.priority);
    none_.resize(free_.size(), 0);
  }

  Schedule run() {
    policy_.look_at(view_);
    keep_running();
    for (size_t job = 0; job < view_.jobs.size(); ++job)
      if (!taken_[job]) bid(job);
    std::make_heap(bids_.begin(), bids_.end(), GoesAfter());
    collecting_ = false;
    while (!bids_.empty() && !closed_ && (sum_of(free_) > 0 || !reserved_)) {
      std::pop_heap(bids_.begin(), bids_.end(), GoesAfter());
      const Bid best = std::move(bids_.back());
      bids_.pop_back();
      if (best.more)
        give_more(best);
      else if (!taken_[best.job])
        look_at(best);
    }
    grow();
    return result();
  }

 private:
  struct Taken {
    PoolCounts devices;
    double rate = 0;
    double seconds = 0;
    int turn = 0;
  };

  /// Those that nothing stops.
  void keep_running() {
    for (size_t i = 0; i < view_.jobs.size(); ++i) {
      const JobView& job = view_.jobs[i];
      if (!job.runs() || (policy_.preempts() && job.preemptible)) continue;
      const double rate = job.speeds.rate(job.held);
      take(i, {job.held, rate, job.seconds_on(job.held, rate)});
    }
  }

  void bid(size_t number) {
    const JobView& job = view_.jobs[number];
    if (job.runs()) push_devices(number, 0, job.held, false);
    if (job.runs() && (!job.moves || !policy_.stops_equals())) return;
    for (size_t i = 0; i < job.any_of.size(); ++i)
      for (size_t pool = 0; pool < view_.pools.size(); ++pool) {
        const int least = job.any_of[i].least_in(pool);
        if (least > job.any_of[i].most ||
            least > room_in(job.any_of[i], pool, view_.pools[pool].devices))
          continue;
        if (job.runs() && job.held[pool] == least && sum_of(job.held) == least) continue;
        Bid bid;
        bid.alternative = i;
        bid.pool = pool;
        bid.offer = {least, job.speeds.rate(pool, least), 0};
        if (bid.offer.rate <= 0) continue;
        bid.offer.seconds = job.seconds_at(bid.offer.rate) + (job.runs() ? job.switch_seconds : 0);
        push(number, std::move(bid));
      }
    if (bids_of_[number] > 0) return;
    PoolCounts all;
    for (const Pool& pool : view_.pools) all.push_back(pool.devices);
    bid_mixed(number, all);
  }

  void push_devices(size_t number, size_t alternative, const PoolCounts& devices, bool mixed) {
    const JobView& job = view_.jobs[number];
    Bid bid;
    bid.alternative = alternative;
    bid.pool = view_.pools.size();
    bid.devices = devices;
    bid.mixed = mixed;
    const double rate = job.speeds.rate(devices);
    bid.offer = {sum_of(devices), rate, job.seconds_on(devices, rate)};
    if (rate > 0) push(number, std::move(bid));
  }

  OfferRank rank(size_t number, const Offer& offer) const {
    const JobView& job = view_.jobs[number];
    if (job.runs() && job.just_started) return {std::numeric_limits<int>::min(), 0};
    return policy_.rank(number, offer);
  }

  void push(size_t number, Bid bid) {
    const JobView& job = view_.jobs[number];
    bid.priority = job.priority;
    bid.waits = !policy_.stops_equals() && !job.runs();
    bid.rank = rank(number, bid.offer);
    bid.job = number;
    bids_.push_back(std::move(bid));
    if (!collecting_) std::push_heap(bids_.begin(), bids_.end(), GoesAfter());
    ++bids_of_[number];
  }

  /// The fastest of these: for a job that finds too few of each type.
  void bid_mixed(size_t number, const PoolCounts& from) {
    const JobView& job = view_.jobs[number];
    mixed_[number] = true;
    if (job.runs() && !job.moves) return;
    for (size_t i = 0; i < job.any_of.size(); ++i) {
      const Alternative& alternative = job.any_of[i];
      if (!alternative.mix) continue;
      const PoolCounts devices = fastest(job, alternative, from);
      if (!devices.empty()) push_devices(number, i, devices, true);
    }
  }

  /// Of one pool that has so many.
  int room_in(const Alternative& alternative, size_t pool, int devices) const {
    return std::min(devices, alternative.room(none_, pool));
  }

  /// Empty where they are too few. Limits that several pools share lie within each other or apart:
  /// to take the fastest first costs nothing later.
  static PoolCounts fastest(const JobView& job, const Alternative& alternative,
                            const PoolCounts& from) {
    std::vector<size_t> pools(from.size());
    for (size_t pool = 0; pool < pools.size(); ++pool) pools[pool] = pool;
    std::stable_sort(pools.begin(), pools.end(), [&](size_t a, size_t b) {
      return job.speeds.rate(a, alternative.least) > job.speeds.rate(b, alternative.least);
    });
    std::erase_if(pools, [&](size_t pool) { return !job.speeds.knows(pool); });
    return alternative.first_of(from, pools);
  }

  void look_at(const Bid& bid) {
    const JobView& job = view_.jobs[bid.job];
    --bids_of_[bid.job];
    if (rank(bid.job, bid.offer) > bid.rank) {  // its owner has been given something
      push(bid.job, bid);
      return;
    }
    const PoolCounts devices = bid.counts(free_.size());
    const bool free = within(devices, free_);
    Taken wanted{devices, bid.offer.rate, bid.offer.seconds};
    if (free && leaves_reserved(job, wanted)) {
      policy_.taken(bid.job, bid.offer);
      take(bid.job, std::move(wanted));
      bid_more(bid.job);
      return;
    }
    // What is free is offered beside what may yet come; and anew, where others took it.
    if (!mixed_[bid.job] || (bid.mixed && !free)) bid_mixed(bid.job, free_);
    if (bids_of_[bid.job] == 0) wait(bid.job);
  }

  /// Nobody grows before one of a lower priority has its first.
  void bid_more(size_t number) {
    const auto gain = best_gain(number);
    if (!gain) return;
    const Taken& taken = *taken_[number];
    const auto rank = policy_.rank_more(number, offer_of(taken), offer_of(with_one_more(*gain)));
    if (!rank) return;
    Bid bid;
    bid.priority = lowest_;
    bid.rank = *rank;
    bid.job = number;
    bid.pool = gain->pool;
    bid.more = true;
    bids_.push_back(std::move(bid));
    std::push_heap(bids_.begin(), bids_.end(), GoesAfter());
  }

  void give_more(const Bid& bid) {
    if (leaves_reserved_pool(view_.jobs[bid.job], bid.pool)) give({1, bid.job, bid.pool});
    bid_more(bid.job);
  }

  static Offer offer_of(const Taken& taken) {
    return {sum_of(taken.devices), taken.rate, taken.seconds};
  }

  void take(size_t job, Taken taken) {
    move(taken.devices, -1, &free_);
    if (reserved_ && !ends_in_time(taken)) move(taken.devices, -1, &spare_);
    taken.turn = ++turns_;
    taken_[job] = std::move(taken);
  }

  /// The first that finds nothing gets what is free soonest.
  void wait(size_t number) {
    closed_ = policy_.strict_order();
    if (closed_ || reserved_) return;
    std::vector<std::pair<double, const Taken*>> ends;
    for (const auto& taken : taken_)
      if (taken) ends.emplace_back(taken->seconds, &*taken);
    std::stable_sort(ends.begin(), ends.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    PoolCounts free = free_;
    for (const auto& [seconds, taken] : ends) {
      move(taken->devices, +1, &free);
      if (reserve(number, seconds, free)) return;
    }
  }

  bool reserve(size_t number, double seconds, const PoolCounts& free) {
    const JobView& job = view_.jobs[number];
    for (const Alternative& alternative : job.any_of) {
      PoolCounts devices = of_one_pool(job, alternative, free);
      if (devices.empty() && alternative.mix) devices = fastest(job, alternative, free);
      if (devices.empty()) continue;
      spare_ = free;
      move(devices, -1, &spare_);
      reserved_ = {number, std::move(devices), view_.now + seconds};
      return true;
    }
    return false;
  }

  PoolCounts of_one_pool(const JobView& job, const Alternative& alternative,
                         const PoolCounts& from) const {
    for (size_t pool = 0; pool < from.size(); ++pool) {
      const int least = alternative.least_in(pool);
      if (!job.speeds.knows(pool) || least > alternative.most ||
          least > room_in(alternative, pool, from[pool]))
        continue;
      PoolCounts devices(from.size(), 0);
      devices[pool] = least;
      return devices;
    }
    return {};
  }

  /// Whether the devices are there in time for who waits for them. A job that may be stopped for
  /// its equals only borrows them.
  bool leaves_reserved(const JobView& job, const Taken& taken) const {
    if (!reserved_ || (policy_.stops_equals() && job.preemptible) || ends_in_time(taken))
      return true;
    for (size_t pool = 0; pool < free_.size(); ++pool)
      if (reserved_->devices[pool] > 0 && taken.devices[pool] > spare_[pool]) return false;
    return true;
  }

  bool ends_in_time(const Taken& taken) const {
    return taken.seconds < kUnknownSeconds && view_.now + taken.seconds <= reserved_->at;
  }

  /// What is left goes to those that make use of more, one device at a time, to the one that gains
  /// most of it.
  void grow() {
    if (closed_) return;
    std::priority_queue<Gain> gains;
    for (size_t job = 0; job < taken_.size(); ++job)
      if (taken_[job]) add_gain(job, &gains);
    while (!gains.empty()) {
      const Gain gain = gains.top();
      gains.pop();
      give(gain);
      add_gain(gain.job, &gains);
    }
    keep_what_hardly_gains();
  }

  struct Gain {
    double times = 1;  ///< faster
    size_t job = 0;
    size_t pool = 0;
    bool operator<(const Gain& other) const {
      return std::tuple(times, other.job, other.pool) < std::tuple(other.times, job, pool);
    }
  };

  void add_gain(size_t number, std::priority_queue<Gain>* gains) const {
    if (const auto gain = best_gain(number)) gains->push(*gain);
  }

  Taken with_one_more(const Gain& gain) const {
    const JobView& job = view_.jobs[gain.job];
    Taken more = *taken_[gain.job];
    ++more.devices[gain.pool];
    more.rate = job.speeds.rate(more.devices);
    more.seconds = job.seconds_on(more.devices, more.rate);
    return more;
  }

  void give(const Gain& gain) {
    if (free_[gain.pool] == 0) return;
    --free_[gain.pool];
    taken_[gain.job] = with_one_more(gain);
  }

  std::optional<Gain> best_gain(size_t number) const {
    const JobView& job = view_.jobs[number];
    if (job.runs() && !(job.moves && policy_.preempts() && job.preemptible)) return std::nullopt;
    const Taken& taken = *taken_[number];
    Gain best{kWorthADevice, number, 0};
    bool found = false;
    for (size_t pool = 0; pool < free_.size(); ++pool) {
      PoolCounts more = taken.devices;
      ++more[pool];
      if (free_[pool] == 0 || !is_admitted(job, more)) continue;
      const double times = job.speeds.rate(more) / taken.rate;
      if (times <= best.times) continue;
      best = {times, number, pool};
      found = true;
    }
    if (!found || !leaves_reserved_pool(job, best.pool)) return std::nullopt;
    return best;
  }

  /// Devices reserved for another are not taken for good.
  bool leaves_reserved_pool(const JobView& job, size_t pool) const {
    return !reserved_ || reserved_->devices[pool] == 0 ||
           (policy_.stops_equals() && job.preemptible);
  }

  static bool is_admitted(const JobView& job, const PoolCounts& devices) {
    return std::any_of(job.any_of.begin(), job.any_of.end(),
                       [&](const Alternative& alternative) { return alternative.admits(devices); });
  }

  /// A job that runs is not stopped for a few devices more.
  void keep_what_hardly_gains() {
    for (size_t i = 0; i < taken_.size(); ++i) {
      const JobView& job = view_.jobs[i];
      if (!taken_[i] || !job.runs() || taken_[i]->devices == job.held) continue;
      const double before = job.seconds_on(job.held), after = job.seconds_on(taken_[i]->devices);
      if (!within(job.held, taken_[i]->devices) || after <= before * kWorthSwitching) continue;
      move(taken_[i]->devices, +1, &free_);
      move(job.held, -1, &free_);
      taken_[i]->devices = job.held;
    }
  }

  Schedule result() {
    Schedule schedule;
    for (size_t job = 0; job < taken_.size(); ++job)
      if (taken_[job])
        schedule.run.push_back({job, std::move(taken_[job]->devices), taken_[job]->turn});
    schedule.reserved = std::move(reserved_);
    return schedule;
  }

  static constexpr double kWorthADevice = 1.005;   ///< times faster
  static constexpr double kWorthSwitching = 0.98;  ///< of the time that is left

  Policy& policy_;
  const QueueView& view_;
  PoolCounts free_, none_;
  int lowest_ = 100;                         ///< priority of all
  std::vector<Bid> bids_;                    ///< a heap, the first to be looked at on top
  bool collecting_ = true;                   ///< not a heap yet
  std::vector<std::optional<Taken>> taken_;  ///< by job
  std::vector<int> bids_of_;                 ///< in the queue
  std::vector<bool> mixed_;                  ///< whether what was free was offered
  std::optional<Reservation> reserved_;
  PoolCounts spare_;  ///< when it begins, besides it
  bool closed_ = false;
  int turns_ = 0;
};

}  // namespace

Schedule schedule(Policy& policy, const QueueView& view) { return Placer(policy, view).run(); }

}  // namespace motley
