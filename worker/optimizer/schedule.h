#pragma once
#include "core/spec/job_spec.h"

namespace motley {

/// Learning rate of step `step` (from 1) of `steps`: linear warm-up to lr over schedule.warmup
/// steps, then constant or the half cosine down to min_lr at the last step.
double learning_rate(const OptimizerSpec& optimizer, const ScheduleSpec& schedule, int64_t step,
                     int64_t steps);

/// min(1, clip / norm); 1 when clip is 0.
double clip_factor(double clip, double norm);

}  // namespace motley
