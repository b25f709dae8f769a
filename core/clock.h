#pragma once
// Time as a seam: real, and by hand for tests and simulation. No decision may use a wall clock.

#include "core/ids.h"

namespace motley {

class Clock {
 public:
  virtual ~Clock() = default;
  /// Monotonic; the origin is arbitrary.
  virtual Nanos now() const = 0;
  /// Returns at or after `deadline` (of now()'s time line).
  virtual void sleep_until(Nanos deadline) = 0;
};

/// CLOCK_MONOTONIC. Thread-safe.
Clock& steady_clock();

/// A clock that moves only when told to, or when someone sleeps on it. One thread.
class ManualClock final : public Clock {
 public:
  Nanos now() const override { return now_; }
  void sleep_until(Nanos deadline) override {
    if (deadline > now_) now_ = deadline;
  }
  void advance(Nanos by) { now_ += by; }

 private:
  Nanos now_{0};
};

}  // namespace motley
