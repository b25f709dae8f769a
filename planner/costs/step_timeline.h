#pragma once
// A step of a plan, second by second: what every rank does and whom it waits for, from the same
// times and the same event simulation as the plan's prediction. A step begins where the sums of the
// one before have ended, with the update that follows from them. Pure.

#include <cstdint>
#include <vector>

#include "core/ids.h"
#include "core/plan.h"
#include "planner/request.h"

namespace motley {

enum class SpanKind : uint8_t {
  kUpdate,
  kForward,
  kBackward,
  kReceive,   ///< from a neighbouring stage
  kGroupSum,  ///< over the ranks that share a stage, and waiting for them within a pass
  kReduce,    ///< gradients over ranks, and what follows from them back
};

enum class SpanClass : uint8_t { kBusy, kWaiting, kCommunicating };

struct TimelineSpan {
  SpanKind kind = SpanKind::kForward;
  bool waiting = false;  ///< for others, before what is named
  int micro_batch = -1;  ///< of a pass, or of what it waits for; else -1
  Nanos begin{0};
  Nanos end{0};

  SpanClass span_class() const;
};

struct RankTimeline {
  Rank rank;
  std::vector<TimelineSpan> spans;  ///< one after the other, from 0 to the step's end, none empty

  Nanos time_in(SpanClass which) const;
};

struct StepTimeline {
  std::vector<RankTimeline> ranks;  ///< by rank
  Nanos step{0};                    ///< plan.prediction.step_seconds
};

/// Of a plan that predict() has priced with the same request.
Result<StepTimeline> step_timeline(const PlanRequest& request, const Plan& plan);

}  // namespace motley
