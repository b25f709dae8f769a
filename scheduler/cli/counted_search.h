#pragma once
// Searches one after the other, for commands that need many.

#include "planner/questions/fleet_parts.h"
#include "scheduler/run/progress_line.h"
#include "scheduler/run/signal_inbox.h"

namespace motley {

/// The same search, which shows how many plans it was asked for, and fails with kStopped once a
/// signal came. `signals` and `line` outlive it.
SearchPlan counted_search(SearchPlan search, SignalInbox& signals, ProgressLine& line);

}  // namespace motley
