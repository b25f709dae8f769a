#include "planner/plain/deal.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <queue>
#include <set>
#include <tuple>
#include <utility>

#include "planner/plain/deal_capacity.h"
#include "planner/plain/grain_sums.h"

namespace motley {
namespace {

constexpr int64_t kMostSumBytes = 64 << 20;

/// What a device can compute within a bound.
struct Able {
  int device = 0;
  int most = 0;        ///< grains, all of them whole
  int most_short = 0;  ///< grains, the short one among them
};

/// The `n` devices that can take the most together.
struct Selection {
  int64_t total = -1;
  std::vector<Able> devices;
  int short_device = -1;
};

const GrainCurve& curve_of(const DealProblem& problem, const Deal& deal, int device) {
  const GrainTable& table = *problem.devices[static_cast<size_t>(device)];
  return device == deal.short_device ? table.shorted : table.full;
}

double seconds_of(const DealProblem& problem, const Deal& deal, int device) {
  return curve_of(problem, deal, device).seconds(deal.grains[static_cast<size_t>(device)]);
}

/// Sorted by what they can take; nothing fits where fewer than n can take anything.
Selection select(const DealProblem& problem, std::vector<Able> able, int n) {
  std::stable_sort(able.begin(), able.end(),
                   [](const Able& a, const Able& b) { return a.most > b.most; });
  std::vector<int64_t> sum_of_first(able.size() + 1, 0);
  size_t positive = 0;
  for (size_t i = 0; i < able.size(); ++i) {
    sum_of_first[i + 1] = sum_of_first[i] + able[i].most;
    if (able[i].most > 0) ++positive;
  }
  const auto wanted = static_cast<size_t>(n);
  Selection selection;
  if (!problem.has_short) {
    if (positive < wanted) return selection;
    selection.total = sum_of_first[wanted];
    selection.devices.assign(able.begin(), able.begin() + n);
    return selection;
  }
  size_t chosen = able.size();
  for (size_t i = 0; i < able.size(); ++i) {
    const bool among = i + 1 < wanted;  // of those that would be taken without it
    if (able[i].most_short == 0 || positive < (among ? wanted : wanted - 1)) continue;
    const int64_t others = among ? sum_of_first[wanted] - able[i].most : sum_of_first[wanted - 1];
    if (others + able[i].most_short <= selection.total) continue;
    selection.total = others + able[i].most_short;
    chosen = i;
  }
  if (chosen == able.size()) return selection;
  selection.short_device = able[chosen].device;
  for (size_t i = 0; i < able.size() && selection.devices.size() + 1 < wanted; ++i) {
    if (i != chosen) selection.devices.push_back(able[i]);
  }
  able[chosen].most = able[chosen].most_short;
  selection.devices.push_back(able[chosen]);
  return selection;
}

/// Deals grain by grain to the device that would be done first, none beyond what it can take.
Deal fill(const DealProblem& problem, const Selection& selection) {
  Deal deal;
  deal.grains.assign(problem.devices.size(), 0);
  deal.short_device = selection.short_device;
  using Next = std::pair<double, size_t>;  // seconds with one grain more; position in the fleet
  std::priority_queue<Next, std::vector<Next>, std::greater<>> queue;
  std::vector<int> most(problem.devices.size(), 0);
  const auto offer = [&](size_t device) {
    const int grains = deal.grains[device] + 1;
    if (grains > most[device]) return;
    const GrainCurve& curve = curve_of(problem, deal, static_cast<int>(device));
    queue.emplace(curve.seconds(grains), device);
  };
  int left = problem.grains;
  for (const Able& able : selection.devices) {
    const auto device = static_cast<size_t>(able.device);
    most[device] = able.most;
    deal.grains[device] = 1;
    --left;
    offer(device);
  }
  for (; left > 0; --left) {
    const size_t device = queue.top().second;
    queue.pop();
    ++deal.grains[device];
    offer(device);
  }
  return deal;
}

/// Moves single grains while that makes the later of two devices done earlier.
void balance(const DealProblem& problem, Deal* deal) {
  std::vector<int> used;
  for (size_t i = 0; i < deal->grains.size(); ++i) {
    if (deal->grains[i] > 0) used.push_back(static_cast<int>(i));
  }
  const auto seconds_with = [&](int device, int more) {
    const int grains = deal->grains[static_cast<size_t>(device)] + more;
    return grains == 0 ? kNever : curve_of(problem, *deal, device).seconds(grains);
  };
  const auto move_one = [&] {
    for (const int from : used) {
      for (const int to : used) {
        if (from == to || deal->grains[static_cast<size_t>(from)] < 2) continue;
        const double before = std::max(seconds_with(from, 0), seconds_with(to, 0));
        if (std::max(seconds_with(from, -1), seconds_with(to, 1)) >= before) continue;
        --deal->grains[static_cast<size_t>(from)];
        ++deal->grains[static_cast<size_t>(to)];
        return true;
      }
    }
    return false;
  };
  while (move_one()) {
  }
}

class DealSearch {
 public:
  explicit DealSearch(const DealProblem& problem)
      : problem_(problem), bounds_(*problem.section_times), capacity_(problem) {}

  DealResult run() {
    const int most = std::min(
        {problem_.most_devices, problem_.grains, static_cast<int>(problem_.devices.size())});
    open_numbers(problem_.least_devices, most, 0);
    while (!open_.empty()) {
      const Numbers next = open_.top();
      open_.pop();
      if (!improves(next.step, next.low)) break;  // then none does
      if (next.low == next.high) {
        search(next.low, next.bound);
        continue;
      }
      const int middle = next.low + (next.high - next.low) / 2;
      open_numbers(next.low, middle, next.bound);
      open_numbers(middle + 1, next.high, next.bound);
    }
    result_.nodes += capacity_.bounds_tried();
    result_.lower_bound = std::min({result_.deal.step_seconds, unresolved_, problem_.cutoff});
    return std::move(result_);
  }

 private:
  /// Deals of `low` to `high` devices: none is quicker than `step`, nor any section than
  /// bounds_[bound].
  struct Numbers {
    double step;
    int low, high;
    size_t bound;
    bool operator>(const Numbers& other) const {
      return std::tie(step, low) > std::tie(other.step, other.low);
    }
  };

  void open_numbers(int low, int high, size_t from) {
    if (low > high) return;
    const size_t bound = capacity_.first_for(low, high, from);
    if (bound == bounds_.size()) return;
    const double step = step_seconds(bounds_[bound], problem_.reduction_of(low, high));
    if (improves(step, low)) open_.push({step, low, high, bound});
  }

  double step_of(int n, size_t bound) const {
    return step_seconds(bounds_[bound], problem_.reduction_of(n, n));
  }

  bool improves(double step, int n) const {
    const Deal& best = result_.deal;
    if (best.grains.empty()) return step <= problem_.cutoff;
    return step < best.step_seconds || (step == best.step_seconds && n < best.devices());
  }

  /// The best selection of n devices; `whole`: counting only numbers up to which every one is
  /// computed within the bound.
  Selection select_within(int n, size_t bound, bool whole) {
    ++result_.nodes;
    const double limit = bounds_[bound];
    const auto most = [&](const GrainCurve& curve) {
      return whole ? curve.whole_within(limit) : curve.most_within(limit);
    };
    std::vector<Able> able;
    for (size_t i = 0; i < problem_.devices.size(); ++i) {
      const GrainTable& table = *problem_.devices[i];
      const Able one{static_cast<int>(i), most(table.full),
                     problem_.has_short ? most(table.shorted) : 0};
      if (one.most > 0 || one.most_short > 0) able.push_back(one);
    }
    return select(problem_, std::move(able), n);
  }

  /// The first of bounds_ from `from` on for which `holds`, which stays true once it is; bounds_'s
  /// end (or `to`) if none.
  size_t first_where(size_t from, size_t to, const std::function<bool(size_t)>& holds) const {
    while (from < to) {
      const size_t middle = from + (to - from) / 2;
      if (holds(middle)) {
        to = middle;
      } else {
        from = middle + 1;
      }
    }
    return from;
  }

  size_t first_holding(int n, size_t from, size_t to) {
    const auto holds = [&](size_t bound) {
      return select_within(n, bound, false).total >= problem_.grains;
    };
    if (from >= to) return to;
    return holds(from) ? from : first_where(from + 1, to, holds);
  }

  /// The quickest deal of n devices, if it improves; no section is below bounds_[from].
  void search(int n, size_t from) {
    const double reduction = problem_.reduction_of(n, n);
    const size_t useless = first_where(from, bounds_.size(), [&](size_t bound) {
      return !improves(step_seconds(bounds_[bound], reduction), n);
    });
    const size_t first = first_holding(n, from, useless);
    if (first == useless) return;
    std::optional<Deal> deal = realise({n, first, useless});
    if (!deal) return;
    deal->step_seconds = deal_seconds(problem_, *deal);
    if (improves(deal->step_seconds, n)) result_.deal = std::move(*deal);
  }

  /// Deals of n devices with sections from bounds_[first] to before bounds_[end].
  struct Range {
    int n;
    size_t first, end;
  };

  /// The deal of a range with the least bound, if there is one.
  std::optional<Deal> realise(const Range& range) {
    const auto whole_at = [&](size_t bound) { return select_within(range.n, bound, true); };
    const Selection whole = whole_at(range.first);
    if (whole.total >= problem_.grains) return fill(problem_, whole);
    if (deal_by_sums_bytes(problem_, range.n) <= kMostSumBytes) return realise_by_sums(range);
    unresolved_ = std::min(unresolved_, step_of(range.n, range.first));
    const size_t found = first_where(range.first, range.end, [&](size_t bound) {
      return whole_at(bound).total >= problem_.grains;
    });
    if (found == range.end) return std::nullopt;
    return fill(problem_, whole_at(found));
  }

  std::optional<Deal> realise_by_sums(const Range& range) {
    const auto deal_at = [&](size_t bound) {
      ++result_.nodes;
      return deal_by_sums(problem_, range.n, bounds_[bound]);
    };
    const size_t found = first_where(range.first, range.end,
                                     [&](size_t bound) { return deal_at(bound).has_value(); });
    if (found == range.end) return std::nullopt;
    std::optional<Deal> deal = deal_at(found);
    balance(problem_, &*deal);
    return deal;
  }

  const DealProblem& problem_;
  const std::vector<double>& bounds_;  ///< on sections: every time that occurs, rising
  DealCapacity capacity_;
  std::priority_queue<Numbers, std::vector<Numbers>, std::greater<>> open_;
  double unresolved_ = kNever;
  DealResult result_;
};

}  // namespace

int Deal::devices() const {
  return static_cast<int>(std::count_if(grains.begin(), grains.end(), [](int g) { return g > 0; }));
}

double DealProblem::reduction_of(int low, int high) const {
  if (least_reduction) return least_reduction(low, high);
  return *std::min_element(reduction.begin() + low, reduction.begin() + high + 1);
}

double deal_seconds(const DealProblem& problem, const Deal& deal) {
  double section = 0;
  for (size_t i = 0; i < deal.grains.size(); ++i) {
    if (deal.grains[i] == 0) continue;
    section = std::max(section, seconds_of(problem, deal, static_cast<int>(i)));
  }
  const int devices = deal.devices();
  return step_seconds(section, problem.reduction_of(devices, devices));
}

std::vector<double> section_times(const std::vector<const GrainTable*>& tables) {
  std::vector<double> times;
  for (const GrainTable* table : std::set<const GrainTable*>(tables.begin(), tables.end())) {
    for (const GrainCurve* curve : {&table->full, &table->shorted}) {
      for (const double seconds : curve->all()) {
        if (seconds < kNever) times.push_back(seconds);
      }
    }
  }
  std::sort(times.begin(), times.end());
  times.erase(std::unique(times.begin(), times.end()), times.end());
  return times;
}

DealResult best_deal(const DealProblem& problem) {
  if (problem.devices.empty()) return {};
  return DealSearch(problem).run();
}

}  // namespace motley
