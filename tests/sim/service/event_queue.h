#pragma once
// Virtual time: what happens next happens at once.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <utility>

#include "core/clock.h"

namespace motley::testing {

class EventQueue {
 public:
  using Event = std::function<void()>;

  const ManualClock& clock() const { return clock_; }
  Nanos now() const { return clock_.now(); }
  double seconds() const { return static_cast<double>(now().value()) * 1e-9; }

  void at(Nanos when, Event event) {
    events_.emplace(std::pair(std::max(when, now()), ++number_), std::move(event));
  }
  void in(double seconds, Event event) { at(now() + nanos_of_seconds(seconds), std::move(event)); }
  /// False where nothing is left to happen until then.
  bool step(Nanos until) {
    if (events_.empty() || events_.begin()->first.first > until) return false;
    auto node = events_.extract(events_.begin());
    clock_.sleep_until(node.key().first);
    node.mapped()();
    return true;
  }

 private:
  ManualClock clock_;
  std::map<std::pair<Nanos, uint64_t>, Event> events_;  ///< those of one time in order of asking
  uint64_t number_ = 0;
};

/// All that is left to chance, from one seed.
class Chance {
 public:
  explicit Chance(uint32_t seed) : random_(seed) {}

  double between(double low, double high) {
    return low + (high - low) * static_cast<double>(random_() >> 11) * 0x1p-53;
  }
  int up_to(int most) { return static_cast<int>(between(0, most + 1)); }  ///< 0 to `most`
  bool happens(double probability) { return between(0, 1) < probability; }
  /// Until the next of events that come so many seconds apart on average.
  double wait(double mean) { return -mean * std::log(1 - between(0, 1)); }

 private:
  std::mt19937_64 random_;
};

}  // namespace motley::testing
