#include "core/clock.h"

#include <cerrno>
#include <ctime>

namespace motley {
namespace {

constexpr int64_t kNanosPerSecond = 1'000'000'000;

class SteadyClock final : public Clock {
 public:
  Nanos now() const override {
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return Nanos(static_cast<int64_t>(time.tv_sec) * kNanosPerSecond + time.tv_nsec);
  }

  // To an absolute deadline: an interrupted or late sleep never adds up.
  void sleep_until(Nanos deadline) override {
    if (deadline <= now()) return;
    const timespec until{.tv_sec = deadline.value() / kNanosPerSecond,
                         .tv_nsec = deadline.value() % kNanosPerSecond};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
    }
  }
};

}  // namespace

Clock& steady_clock() {
  static SteadyClock clock;
  return clock;
}

}  // namespace motley
