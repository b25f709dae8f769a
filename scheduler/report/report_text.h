#pragma once
// The report of a run as people read it.

#include <string>

#include "core/plan.h"
#include "scheduler/report/run_summary.h"

namespace motley {

/// Loss, predicted against actual step time, efficiency against the sum of solo speeds and against
/// what whole grains allow, the equal split, and who computed and waited how long. Says which kind
/// of evidence it is. Ends in a newline.
std::string report_text(const RunSummary& summary, const Plan& plan);

/// "r1/0 (RTX3090) ran out of memory at micro-batch 8: going on with 4"
std::string out_of_memory_text(const OutOfMemory& what);

}  // namespace motley
