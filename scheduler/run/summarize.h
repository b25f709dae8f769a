#pragma once

#include <optional>
#include <string>

#include "core/plan.h"
#include "scheduler/report/run_summary.h"
#include "scheduler/run/run_directory.h"
#include "scheduler/run/training.h"

namespace motley {

/// What a run came to so far, from its metrics and its last attempt, which this process has seen.
RunSummary summarize(const RunDirectory& run, const JobSpec& job, const TrainingResult& training,
                     const std::optional<EqualSplit>& equal_split);

/// The same of a program that told of its steps; its state is for the caller to say.
RunSummary summarize_program(const RunDirectory& run, const JobSpec& job, const Plan& plan);

/// What can be said of any run: its report.json where that is of its last step, else its metrics so
/// far (it is running, was killed, or trained without `motley`). kNotFound before the first step.
Result<RunSummary> summary_of(const RunDirectory& run);

/// It has done all steps of the job: nothing is left to train.
bool is_over(const RunSummary& summary, const JobSpec& job);

/// What a run that is over came to, whoever trained it; nothing while there are steps left. Of a
/// run by hand that is its metrics: it has no report.
std::optional<RunSummary> summary_if_over(const RunDirectory& run, const JobSpec& job);

}  // namespace motley
