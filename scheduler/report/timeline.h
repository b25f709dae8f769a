#pragma once
// A simulated step as people and programs look at it: a table, a picture, a trace, JSON.

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "core/plan.h"
#include "core/profile.h"
#include "planner/costs/step_timeline.h"

namespace motley {

/// What is drawn, all but the name borrowed.
struct DrawnStep {
  std::string job;  ///< its name
  const Plan& plan;
  const Profile& profile;  ///< whose evidence the figures are of
  const StepTimeline& timeline;
};

/// For each rank where it is, what part of the step it is busy, waits and communicates, its memory,
/// and of which kind its figures are. Then the step in one line.
std::string timeline_table(const DrawnStep& step);

/// A complete SVG document: a row for each of the first kMostDrawnRanks ranks.
std::string timeline_svg(const DrawnStep& step);
inline constexpr size_t kMostDrawnRanks = 128;

/// A trace of one step (core/FORMATS.md, "trace").
std::string timeline_trace(const DrawnStep& step);

/// Members evidence, step_seconds, samples_per_second, ranks of core/FORMATS.md, "simulate".
nlohmann::json timeline_json(const DrawnStep& step);

}  // namespace motley
