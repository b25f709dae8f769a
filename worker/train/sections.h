#pragma once
// A rank's time line as its pacer tells it: sections of work, cut by communications.

#include <utility>

#include "worker/train/pacer.h"

namespace motley {

class Sections {
 public:
  explicit Sections(Pacer& pacer) : pacer_(pacer) { open(); }

  /// Work for the section under way.
  void charge(double flops, int samples) { pacer_.charge(flops, samples); }
  /// Before a communication: waits the section out.
  void close() { worked_ += pacer_.end_section(); }
  /// After it.
  void open() { pacer_.begin_section(); }
  /// Seconds of closed sections since the last call.
  double take_worked() { return std::exchange(worked_, 0); }

  Pacer& pacer() { return pacer_; }

 private:
  Pacer& pacer_;
  double worked_ = 0;
};

}  // namespace motley
