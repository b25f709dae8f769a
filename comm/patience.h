#pragma once
// How a rank waits without burning a core it may share with the rank it waits for.

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "comm/cpu_quota.h"

namespace motley {

/// Yields while things happen, then sleeps for a fiftieth of the silence so far, at most 200 us.
/// Where CPU time is limited, what is burnt waiting is missing afterwards: there it sleeps after 20
/// us in place of 500, and for a quarter of the silence, at most 500 us.
class Patience {
 public:
  using Clock = std::chrono::steady_clock;

  void something_happened() { quiet_since_ = Clock::now(); }
  Clock::duration silence() const { return Clock::now() - quiet_since_; }
  void pause() {
    using std::chrono::microseconds;
    const auto quiet = silence();
    const bool limited = cpu_time_is_limited();
    if (quiet < microseconds(limited ? 20 : 500)) {
      sched_yield();
      return;
    }
    std::this_thread::sleep_for(limited ? std::min<Clock::duration>(quiet / 4, microseconds(500))
                                        : std::min<Clock::duration>(quiet / 50, microseconds(200)));
  }
  /// Beside work that wants the core: sleeps at once, for half of the silence so far, 50 us to 1
  /// ms: several chunks are under way, so links do not wait for it.
  void nap() const {
    using std::chrono::microseconds;
    std::this_thread::sleep_for(
        std::clamp<std::chrono::nanoseconds>(silence() / 2, microseconds(50), microseconds(1000)));
  }

 private:
  Clock::time_point quiet_since_ = Clock::now();
};

}  // namespace motley
