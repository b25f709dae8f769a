#pragma once
// What a rank's time went on, for people to look at in Perfetto or chrome://tracing
// (core/FORMATS.md, "trace"). One thread; no allocation after the constructor but in to_json().

#include <cstdint>
#include <string>
#include <vector>

#include "core/ids.h"
#include "core/plan.h"
#include "core/result.h"

namespace motley {

enum class TraceKind : uint8_t {
  kStep,  ///< holds all others of a step
  kForward,
  kBackward,
  kEvaluate,
  kUpdate,
  // Each of these after what it waited for, an event of its own:
  kReceive,     ///< from a neighbouring stage; waiting: until that has it
  kSend,        ///< handing it over; waiting: until what was sent may be written over
  kGroupSum,    ///< over the ranks that share a stage
  kAgreement,   ///< sum of the losses
  kReduce,      ///< gradients to their owners
  kDistribute,  ///< from the owners to all holders: gradients, or weights
  kAverage,     ///< over groups that train apart
};

class Trace {
 public:
  /// What is kept in memory, of a rank: about 4 MB.
  static constexpr size_t kMostEvents = 100'000;

  /// Keeps the newest `most` events.
  explicit Trace(size_t most = kMostEvents) : most_(most) { events_.reserve(most); }

  /// The zero of the trace, on the rank's clock: at the same moment on all ranks. Step `step`
  /// begins.
  void begin(int64_t step, double now);
  /// From `begin` to `end`, seconds on the rank's clock; returns where the next one may begin.
  /// `waiting`: for other ranks, before what is named.
  double add(TraceKind kind, int micro_batch, double begin, double end, bool waiting = false);
  /// The next step begins.
  void end_step(double now);

  struct Event {
    TraceKind kind = TraceKind::kStep;
    bool waiting = false;
    int micro_batch = -1;
    int64_t step = 0;
    Nanos begin{0};
    Nanos end{0};
  };
  /// Oldest first.
  std::vector<Event> events() const;

  /// The document of `rank` of the plan.
  std::string to_json(const Plan& plan, Rank rank) const;

 private:
  size_t most_;
  std::vector<Event> events_;  ///< a ring once it is full
  int64_t added_ = 0;
  double origin_ = 0;
  double step_begin_ = 0;
  int64_t step_ = 0;
};

}  // namespace motley
