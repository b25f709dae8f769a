#include "planner/plain/grain_sums.h"

#include "core/check.h"

namespace motley {
namespace {

/// A set of totals, 0 to a largest one.
class Totals {
 public:
  explicit Totals(int largest) : words_(static_cast<size_t>(largest) / 64 + 1, 0) {}

  bool has(int total) const { return words_[word(total)] >> (total % 64) & 1; }
  void insert(int total) { words_[word(total)] |= uint64_t{1} << (total % 64); }
  bool empty() const {
    for (const uint64_t bits : words_) {
      if (bits != 0) return false;
    }
    return true;
  }
  void unite(const Totals& other) {
    for (size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i];
  }
  /// Adds every total of `other` plus `by`; what grows beyond the last word is dropped.
  void unite_shifted(const Totals& other, int by) {
    const size_t skip = word(by);
    const int bits = by % 64;
    for (size_t i = words_.size(); i-- > skip;) {
      uint64_t moved = other.words_[i - skip] << bits;
      if (bits > 0 && i > skip) moved |= other.words_[i - skip - 1] >> (64 - bits);
      words_[i] |= moved;
    }
  }

 private:
  static size_t word(int total) { return static_cast<size_t>(total) / 64; }
  std::vector<uint64_t> words_;
};

/// Adds every total of `from` plus each of low..high, in a logarithmic number of shifts.
void unite_shifted_range(const Totals& from, int low, int high, Totals* to) {
  Totals spread = from;  // from plus 0..width-1
  for (int width = 1; width < high - low + 1;) {
    const int step = std::min(width, high - low + 1 - width);
    const Totals before = spread;
    spread.unite_shifted(before, step);
    width += step;
  }
  to->unite_shifted(spread, low);
}

/// Adds every total of `from` plus a number of grains that `curve` computes within `limit`.
void unite_dealt(const Totals& from, const GrainCurve& curve, double limit, Totals* to) {
  if (from.empty()) return;
  const int most = curve.most_within(limit);
  for (int low = 1; low <= most; ++low) {
    if (curve.seconds(low) > limit) continue;
    int high = low;
    while (high < most && curve.seconds(high + 1) <= limit) ++high;
    unite_shifted_range(from, low, high, to);
    low = high;
  }
}

/// Totals reachable with the devices so far, by number of them used and whether the short grain is
/// dealt.
struct Layer {
  Layer(int n, int grains)
      : without(static_cast<size_t>(n) + 1, Totals(grains)),
        with(static_cast<size_t>(n) + 1, Totals(grains)) {}
  std::vector<Totals> without, with;
  Totals& at(bool short_dealt, int used) {
    return (short_dealt ? with : without)[static_cast<size_t>(used)];
  }
};

class SumSearch {
 public:
  SumSearch(const DealProblem& problem, int n, double limit)
      : problem_(problem), n_(n), limit_(limit) {}

  std::optional<Deal> run() {
    layers_.emplace_back(n_, problem_.grains);
    layers_.back().at(false, 0).insert(0);
    for (size_t i = 0; i < problem_.devices.size(); ++i) extend(i);
    if (!layers_.back().at(problem_.has_short, n_).has(problem_.grains)) return std::nullopt;
    return trace_back();
  }

 private:
  void extend(size_t device) {
    Layer next = layers_.back();
    const GrainTable& table = *problem_.devices[device];
    Layer& from = layers_.back();
    for (int used = 0; used < n_; ++used) {
      unite_dealt(from.at(false, used), table.full, limit_, &next.at(false, used + 1));
      if (!problem_.has_short) continue;
      unite_dealt(from.at(true, used), table.full, limit_, &next.at(true, used + 1));
      unite_dealt(from.at(false, used), table.shorted, limit_, &next.at(true, used + 1));
    }
    layers_.push_back(std::move(next));
  }

  Deal trace_back() {
    Deal deal;
    deal.grains.assign(problem_.devices.size(), 0);
    State state{n_, problem_.grains, problem_.has_short};
    for (size_t i = problem_.devices.size(); i-- > 0;) {
      if (layers_[i].at(state.short_dealt, state.used).has(state.total)) continue;  // not used
      const GrainTable& table = *problem_.devices[i];
      if (step_back(i, table.full, false, &state, &deal)) continue;
      const bool found = problem_.has_short && step_back(i, table.shorted, true, &state, &deal);
      MOTLEY_CHECK(found, "a reachable total has a way that leads to it");
    }
    return deal;
  }

  struct State {
    int used, total;
    bool short_dealt;
  };

  /// Finds the number of grains with which device `i` led to `state`; the fewest that do.
  bool step_back(size_t i, const GrainCurve& curve, bool took_short, State* state, Deal* deal) {
    if (state->used == 0 || (took_short && !state->short_dealt)) return false;
    const bool before = took_short ? false : state->short_dealt;
    Totals& from = layers_[i].at(before, state->used - 1);
    for (int grains = 1; grains <= state->total; ++grains) {
      if (curve.seconds(grains) > limit_ || !from.has(state->total - grains)) continue;
      deal->grains[i] = grains;
      if (took_short) deal->short_device = static_cast<int>(i);
      *state = {state->used - 1, state->total - grains, before};
      return true;
    }
    return false;
  }

  const DealProblem& problem_;
  int n_;
  double limit_;
  std::vector<Layer> layers_;
};

}  // namespace

std::optional<Deal> deal_by_sums(const DealProblem& problem, int n, double limit) {
  return SumSearch(problem, n, limit).run();
}

int64_t deal_by_sums_bytes(const DealProblem& problem, int n) {
  const int64_t devices = static_cast<int64_t>(problem.devices.size()) + 1;
  return devices * (n + 1) * 2 * (problem.grains / 64 + 1) * 8;
}

}  // namespace motley
