#pragma once
// Lines of a trace (core/FORMATS.md, "trace"): of ranks that ran, and of plans that were simulated.

#include <cstdint>
#include <string>
#include <string_view>

#include "core/ids.h"
#include "core/plan.h"

namespace motley {

/// What every rank's trace begins and ends with; events, one a line, between.
inline constexpr std::string_view kTraceBegin = "[\n";
inline constexpr std::string_view kTraceEnd = "\n]\n";
inline constexpr std::string_view kBetweenTraceLines = ",\n";

struct TraceLine {
  std::string_view name;      ///< without its number and "wait for"
  std::string_view category;  ///< of what is named; waiting for it has its own
  bool waiting = false;
  int micro_batch = -1;  ///< below 0: of none
  int stage = 0;         ///< where there is a micro-batch
  int64_t step = 0;
  bool is_step = false;  ///< named by its number
  Nanos begin{0};
  Nanos end{0};
};
std::string trace_line(const TraceLine& event, Rank rank);

/// Names of the rank and of its part of the plan: three lines. `note` is put behind the former.
std::string trace_names(const Plan& plan, Rank rank, const std::string& note = "");
/// A label beside the rank's name.
std::string trace_label(Rank rank, const std::string& label);

}  // namespace motley
