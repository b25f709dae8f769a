#pragma once

#include <chrono>
#include <thread>

namespace motley {

/// For who is turned away because there are too many just now: a few times more, for some seconds.
class AskAgain {
 public:
  /// Waits; false at once after the last time.
  bool after_a_while() {
    if (left_-- == 0) return false;
    std::this_thread::sleep_for(std::chrono::seconds(1));  // what Retry-After says
    return true;
  }

 private:
  int left_ = 4;
};

}  // namespace motley
