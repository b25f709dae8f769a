#pragma once

#include <optional>
#include <string>

#include "core/plan.h"
#include "scheduler/report/run_summary.h"
#include "scheduler/run/run_directory.h"
#include "scheduler/run/training.h"

namespace motley {

/// What a run came to so far, from its metrics and its last attempt.
RunSummary summarize(const RunDirectory& run, const JobSpec& job, const TrainingResult& training,
                     std::optional<double> equal_split);

}  // namespace motley
