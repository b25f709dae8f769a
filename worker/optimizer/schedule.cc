#include "worker/optimizer/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace motley {

double learning_rate(const OptimizerSpec& optimizer, const ScheduleSpec& schedule, int64_t step,
                     int64_t steps) {
  if (step <= schedule.warmup)
    return optimizer.lr * static_cast<double>(step) / static_cast<double>(schedule.warmup);
  if (schedule.type == "constant") return optimizer.lr;
  // A run that is warm-up alone, or one continued past `steps`, ends at min_lr.
  const double length = static_cast<double>(std::max<int64_t>(1, steps - schedule.warmup));
  const double done = std::min(1.0, static_cast<double>(step - schedule.warmup) / length);
  return schedule.min_lr +
         (optimizer.lr - schedule.min_lr) * 0.5 * (1 + std::cos(std::numbers::pi * done));
}

double clip_factor(double clip, double norm) { return clip > 0 && norm > clip ? clip / norm : 1.0; }

}  // namespace motley
