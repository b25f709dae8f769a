#include "planner/pipelines/pipeline_end.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>

#include "core/check.h"

namespace motley {
namespace {

/// Rounds that differ in turn are looked for up to so many apart.
constexpr size_t kLongestPattern = 8;
/// Of a stage: when it is free, and when its neighbours have what it sent last.
enum Time : size_t { kFree, kForwardArrives, kBackwardArrives, kTimes };

/// When everything is at the end of a round, and by how much what stages waited for in it was late
/// (below 0) or early.
struct Round {
  int64_t* times;
  int64_t* slacks;
};

class Rounds {
 public:
  Rounds(const std::vector<AlikePasses>& stages, int micro_batches)
      : stages_(stages),
        count_(stages.size()),
        last_(micro_batches - 1),
        memory_(2 * numbers() * (1 + kLongestPattern)),
        now_(round(0)) {}

  Nanos run() {
    begin();
    // Until then no stage begins the last micro-batch forward.
    const int alike = std::max(0, last_ - static_cast<int>(count_));
    repeat(alike);
    for (int round = alike; round <= last_; ++round) work(round);
    int64_t end = 0;
    for (size_t s = 0; s < count_; ++s) end = std::max(end, time(s, kFree));
    return Nanos(end);
  }

 private:
  size_t numbers() const { return kTimes * count_; }
  Round round(size_t index) {
    int64_t* const times = memory_.data() + 2 * numbers() * index;
    return {times, times + numbers()};
  }
  int64_t& time(size_t stage, Time which) { return now_.times[kTimes * stage + which]; }

  int64_t forward(size_t stage, int number, bool first) const {
    const AlikePasses& passes = stages_[stage];
    if (number == last_) return passes.last_forward.value();
    return (first ? passes.first_forward : passes.forward).value();
  }

  /// Forward passes before the first backward pass: of stage s one more than of stage s + 1.
  void begin() {
    for (size_t s = 0; s < count_; ++s) time(s, kFree) = stages_[s].ready.value();
    for (int number = 0; number <= last_ && number < static_cast<int>(count_); ++number) {
      int64_t arrives = 0;
      for (size_t s = 0; s + static_cast<size_t>(number) < count_; ++s) {
        int64_t& free = time(s, kFree);
        free = std::max(free, arrives) + forward(s, number, true);
        arrives = time(s, kForwardArrives) = free + stages_[s].forward_travels.value();
      }
    }
  }

  /// The backward pass of a micro-batch and, of each stage, the forward pass after it, for which
  /// the stage before has sent last what is needed.
  void work(int number) {
    for (size_t s = count_; s-- > 0;) {
      const AlikePasses& passes = stages_[s];
      int64_t& free = time(s, kFree);
      if (s + 1 < count_) wait(s, time(s + 1, kBackwardArrives), kBackwardArrives);
      free += (number == last_ ? passes.last_backward : passes.backward).value();
      time(s, kBackwardArrives) = free + passes.backward_travels.value();
      const int next = static_cast<int>(count_ - s) + number;
      if (next > last_) continue;
      if (s > 0) wait(s, time(s - 1, kForwardArrives), kForwardArrives);
      free += forward(s, next, false);
      time(s, kForwardArrives) = free + passes.forward_travels.value();
    }
  }

  void wait(size_t stage, int64_t arrives, Time which) {
    int64_t& free = time(stage, kFree);
    now_.slacks[kTimes * stage + which] = free - arrives;
    free = std::max(free, arrives);
  }

  /// The first `rounds`, which are alike.
  void repeat(int rounds) {
    size_t known = 0;  // rounds before, one after the other
    for (int round = 0; round < rounds; ++round) {
      work(round);
      const int left = rounds - 1 - round;
      int skipped = known >= 2 ? skip_steady(ago(1), ago(2), left) : 0;
      for (size_t length = 2; skipped == 0 && length <= std::min(known, kLongestPattern); ++length)
        skipped = skip_patterns(ago(length), length, left);
      if (skipped > 0) known = 0;
      round += skipped;
      ++known;
      newest_ = (newest_ + 1) % kLongestPattern;
      std::copy_n(now_.times, 2 * numbers(), ago(1).times);
    }
  }

  Round ago(size_t rounds) {
    return round(1 + (newest_ + kLongestPattern + 1 - rounds) % kLongestPattern);
  }

  /// Where every time moves on by as much as it did in the round before, it goes on so until what a
  /// stage waited for begins, or ceases, to be late. How many rounds were skipped.
  int skip_steady(const Round& before, const Round& earlier, int most) {
    for (size_t i = 0; i < numbers(); ++i)
      if (now_.times[i] - before.times[i] != before.times[i] - earlier.times[i]) return 0;
    int64_t rounds = most;
    for (size_t i = 0; i < numbers(); ++i)
      rounds = std::min(rounds, rounds_alike(before.slacks[i], now_.slacks[i]));
    for (size_t i = 0; i < numbers(); ++i) {
      now_.times[i] += rounds * (now_.times[i] - before.times[i]);
      now_.slacks[i] += rounds * (now_.slacks[i] - before.slacks[i]);
    }
    return static_cast<int>(rounds);
  }

  /// While a slack changes as it did in the last round, how often it stays on its side of 0.
  static int64_t rounds_alike(int64_t before, int64_t now) {
    const int64_t slope = now - before;
    if ((before < 0 && now > 0) || (before > 0 && now < 0)) return 0;
    if (slope == 0 || (now > 0 && slope > 0) || (now < 0 && slope < 0))
      return std::numeric_limits<int64_t>::max();
    return std::abs(now) / std::abs(slope);
  }

  /// Where all times have moved on by the same, they will again.
  int skip_patterns(const Round& before, size_t length, int most) {
    const int64_t moved = now_.times[0] - before.times[0];
    for (size_t i = 0; i < numbers(); ++i)
      if (now_.times[i] - before.times[i] != moved) return 0;
    const int alike = static_cast<int>(length), patterns = most / alike;
    for (size_t i = 0; i < numbers(); ++i) now_.times[i] += moved * patterns;
    return patterns * alike;
  }

  const std::vector<AlikePasses>& stages_;
  size_t count_;
  int last_;                     ///< micro-batch
  std::vector<int64_t> memory_;  ///< of this round and the last ones
  Round now_;
  size_t newest_ = 0;
};

}  // namespace

Nanos pipeline_end(const std::vector<AlikePasses>& stages, int micro_batches) {
  MOTLEY_CHECK(!stages.empty() && micro_batches > 0, "a replica has stages and micro-batches");
  return Rounds(stages, micro_batches).run();
}

}  // namespace motley
