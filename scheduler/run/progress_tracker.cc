#include "scheduler/run/progress_tracker.h"

#include <cmath>

#include "core/median.h"

namespace motley {
namespace {

constexpr size_t kRecentSteps = 20;
constexpr double kNewestWeighs = 0.1;  // in the pace

std::optional<Bytes> if_known(Bytes bytes) {
  return bytes > Bytes(0) ? std::optional(bytes) : std::nullopt;
}

double mean_of(const std::deque<StepReport>& steps, double StepReport::*part) {
  double sum = 0;
  for (const StepReport& step : steps) sum += step.*part;
  return sum / static_cast<double>(steps.size());
}

}  // namespace

ProgressTracker::ProgressTracker(const Attempt& attempt, double begun)
    : global_batch_(attempt.job.train.global_batch), recent_(attempt.plan.ranks.size()) {
  progress_.epoch = attempt.epoch;
  progress_.phase = "launching";
  progress_.begun = begun;
  if (attempt.job.train.steps > 0) progress_.steps = attempt.job.train.steps;
  for (size_t i = 0; i < attempt.plan.ranks.size(); ++i) {
    const RankPlacement& placed = attempt.plan.ranks[i];
    RankProgress& rank = progress_.ranks.emplace_back();
    rank.rank = static_cast<int>(i);
    rank.device = placed.device;
    rank.host = placed.host;
    rank.type = placed.type;
    if (i >= attempt.plan.prediction.ranks.size()) continue;
    rank.memory = if_known(attempt.plan.prediction.ranks[i].memory);
    rank.memory_limit = if_known(attempt.plan.prediction.ranks[i].memory_limit);
  }
}

void ProgressTracker::add(const PhaseReport& report) {
  if (report.rank == 0) progress_.phase = report.phase;
}

void ProgressTracker::add(const StepReport& report, Nanos now) {
  if (report.rank < 0 || report.rank >= static_cast<int>(recent_.size())) return;
  Recent& recent = recent_[static_cast<size_t>(report.rank)];
  if (!report.special) recent.push_back(report);
  if (recent.size() > kRecentSteps) recent.pop_front();
  if (report.rank == 0) add_to_pace(report, now);
}

void ProgressTracker::add_to_pace(const StepReport& report, Nanos now) {
  if (last_step_) {
    const double took = seconds_of(now - *last_step_);
    pace_ = pace_ ? *pace_ + kNewestWeighs * (took - *pace_) : took;
  }
  last_step_ = now;
  progress_.step = report.step;
  progress_.loss = std::isfinite(report.loss) ? std::optional(report.loss) : std::nullopt;
  if (pace_ && progress_.steps)
    progress_.eta_seconds = *pace_ * static_cast<double>(*progress_.steps - report.step);
  std::vector<double> steps;
  for (const StepReport& each : recent_[0]) steps.push_back(each.step_seconds);
  progress_.step_seconds = median(std::move(steps));
  if (progress_.step_seconds.value_or(0) > 0 && global_batch_ > 0)
    progress_.samples_per_second = global_batch_ / *progress_.step_seconds;
}

RunProgress ProgressTracker::with_ranks() const {
  RunProgress whole = progress_;
  for (size_t i = 0; i < recent_.size(); ++i) {
    if (recent_[i].empty()) continue;
    whole.ranks[i].compute_seconds = mean_of(recent_[i], &StepReport::compute_seconds);
    whole.ranks[i].wait_seconds = mean_of(recent_[i], &StepReport::wait_seconds);
    whole.ranks[i].update_seconds = mean_of(recent_[i], &StepReport::update_seconds);
    whole.ranks[i].input_seconds = mean_of(recent_[i], &StepReport::input_seconds);
    if (const Bytes told = recent_[i].back().memory; told > Bytes(0)) whole.ranks[i].memory = told;
  }
  return whole;
}

}  // namespace motley
