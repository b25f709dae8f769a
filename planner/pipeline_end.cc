#include "planner/pipeline_end.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "core/check.h"

namespace motley {
namespace {

/// Patterns of more rounds, and those of longer pipelines, are not looked for.
constexpr size_t kLongestPattern = 8;
constexpr size_t kMostToRemember = 16;

/// When a stage is free, and when the neighbours have what it sent last.
struct StageClock {
  int64_t free = 0;
  int64_t forward_arrives = 0;
  int64_t backward_arrives = 0;
};

class Rounds {
 public:
  Rounds(const std::vector<AlikePasses>& stages, int micro_batches, StageClock* clocks)
      : stages_(stages), count_(stages.size()), last_(micro_batches - 1), clocks_(clocks) {}

  Nanos run() {
    begin();
    // Until then no stage has begun the last micro-batch forward.
    const int alike = std::max(0, last_ - static_cast<int>(count_));
    int round = 0;
    if (count_ <= kMostToRemember) round = repeat(alike);
    for (; round <= last_; ++round) work(round);
    int64_t end = 0;
    for (size_t s = 0; s < count_; ++s) end = std::max(end, clocks_[s].free);
    return Nanos(end);
  }

 private:
  int64_t forward(size_t stage, int number, bool first) const {
    const AlikePasses& passes = stages_[stage];
    if (number == last_) return passes.last_forward.value();
    return (first ? passes.first_forward : passes.forward).value();
  }

  /// Forward passes before the first backward pass: of stage s one more than of stage s + 1.
  void begin() {
    for (size_t s = 0; s < count_; ++s) clocks_[s].free = stages_[s].ready.value();
    for (int number = 0; number <= last_ && number < static_cast<int>(count_); ++number) {
      int64_t arrives = 0;
      for (size_t s = 0; s + static_cast<size_t>(number) < count_; ++s) {
        StageClock& clock = clocks_[s];
        clock.free = std::max(clock.free, arrives) + forward(s, number, true);
        arrives = clock.forward_arrives = clock.free + stages_[s].forward_travels.value();
      }
    }
  }

  /// The backward pass of a micro-batch and, of each stage, the forward pass after it, for which
  /// the stage before has sent last what is needed.
  void work(int number) {
    for (size_t s = count_; s-- > 0;) {
      StageClock& clock = clocks_[s];
      const AlikePasses& passes = stages_[s];
      if (s + 1 < count_) clock.free = std::max(clock.free, clocks_[s + 1].backward_arrives);
      clock.free += (number == last_ ? passes.last_backward : passes.backward).value();
      clock.backward_arrives = clock.free + passes.backward_travels.value();
      const int next = static_cast<int>(count_ - s) + number;
      if (next > last_) continue;
      if (s > 0) clock.free = std::max(clock.free, clocks_[s - 1].forward_arrives);
      clock.free += forward(s, next, false);
      clock.forward_arrives = clock.free + passes.forward_travels.value();
    }
  }

  /// The first `rounds`, which are alike; how many were worked or skipped: all of them.
  int repeat(int rounds) {
    using Times = std::array<StageClock, kMostToRemember>;
    std::array<Times, kLongestPattern + 1> seen;  // by round
    for (int round = 0; round < rounds; ++round) {
      work(round);
      Times& now = seen[static_cast<size_t>(round) % seen.size()];
      std::copy(clocks_, clocks_ + count_, now.begin());
      for (int ago = 1; ago <= std::min(round, static_cast<int>(kLongestPattern)); ++ago) {
        const Times& then = seen[static_cast<size_t>(round - ago) % seen.size()];
        const int64_t moved = now[0].free - then[0].free;
        if (!all_moved(then.data(), moved)) continue;
        const int patterns = (rounds - 1 - round) / ago;
        for (size_t s = 0; s < count_; ++s) move(moved * patterns, &clocks_[s]);
        round += patterns * ago;
        while (++round < rounds) work(round);
        return rounds;
      }
    }
    return rounds;
  }

  bool all_moved(const StageClock* then, int64_t by) const {
    for (size_t s = 0; s < count_; ++s)
      if (clocks_[s].free - then[s].free != by ||
          clocks_[s].forward_arrives - then[s].forward_arrives != by ||
          clocks_[s].backward_arrives - then[s].backward_arrives != by)
        return false;
    return true;
  }

  static void move(int64_t by, StageClock* clock) {
    clock->free += by;
    clock->forward_arrives += by;
    clock->backward_arrives += by;
  }

  const std::vector<AlikePasses>& stages_;
  size_t count_;
  int last_;  ///< micro-batch
  StageClock* clocks_;
};

}  // namespace

Nanos pipeline_end(const std::vector<AlikePasses>& stages, int micro_batches) {
  MOTLEY_CHECK(!stages.empty() && micro_batches > 0, "a replica has a stage and a micro-batch");
  std::array<StageClock, kMostToRemember> few = {};
  std::vector<StageClock> many;
  if (stages.size() > few.size()) many.resize(stages.size());
  return Rounds(stages, micro_batches, many.empty() ? few.data() : many.data()).run();
}

}  // namespace motley
