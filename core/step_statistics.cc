#include "core/step_statistics.h"

#include <algorithm>
#include <numeric>

#include "core/median.h"
#include "core/sync_groups.h"

namespace motley {
namespace {

template <class Values>
double mean_of(const Values& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

}  // namespace

TypicalStep::TypicalStep(const Plan& plan)
    : across_(trains_apart(plan) ? static_cast<size_t>(plan.sync.across) : 1) {}

void TypicalStep::add(double seconds) {
  all_.push_back(seconds);
  row_.push_back(seconds);
  if (row_.size() > across_) row_.pop_front();
  if (row_.size() == across_) means_.push_back(mean_of(row_));
}

std::optional<double> TypicalStep::seconds() const {
  if (!means_.empty() || all_.empty()) return median(means_);
  return mean_of(all_);
}

StepStatistics::StepStatistics(const Plan& plan) : typical_(plan), ranks_(plan.ranks.size()) {
  for (size_t i = 0; i < ranks_.size(); ++i) {
    ranks_[i].total.rank = static_cast<int>(i);
    ranks_[i].total.device = plan.ranks[i].device;
  }
}

void StepStatistics::add(const StepReport& report) {
  if (report.rank < 0 || report.rank >= static_cast<int>(ranks_.size())) return;
  RankSums& rank = ranks_[static_cast<size_t>(report.rank)];
  ++rank.seen;
  rank.total.samples += report.samples;
  rank.total.paced = {.sections = report.sections, .overruns = report.overruns};
  if (report.rank == 0) {
    steps_.push_back(report);
    last_step_ = report.step;
  }
  const bool counts = !report.special && rank.seen > kWarmUpSteps;
  add_wait(report, counts);
  if (!counts) return;
  ++rank.counted;
  rank.compute_seconds += report.compute_seconds;
  rank.wait_seconds += report.wait_seconds;
  rank.update_seconds += report.update_seconds;
  rank.input_seconds += report.input_seconds;
}

void StepStatistics::add_wait(const StepReport& report, bool counts) {
  constexpr size_t kMostOpen = 64;
  OpenStep& step = open_[report.step];
  step.least_wait =
      step.ranks == 0 ? report.wait_seconds : std::min(step.least_wait, report.wait_seconds);
  step.counts = step.counts && counts;
  if (++step.ranks == static_cast<int>(ranks_.size())) {
    if (step.counts) {
      least_wait_sum_ += step.least_wait;
      ++least_waits_;
    }
    open_.erase(report.step);
  }
  if (open_.size() > kMostOpen) open_.erase(open_.begin());
}

std::optional<double> StepStatistics::least_wait_seconds() const {
  if (least_waits_ == 0) return std::nullopt;
  return least_wait_sum_ / static_cast<double>(least_waits_);
}

std::optional<double> StepStatistics::typical_step_seconds(int warm_up) const {
  TypicalStep typical = typical_;
  for (size_t i = static_cast<size_t>(warm_up); i < steps_.size(); ++i)
    steps_[i].special ? typical.interrupt() : typical.add(steps_[i].step_seconds);
  return typical.seconds();
}

std::vector<RankActual> StepStatistics::ranks() const {
  std::vector<RankActual> means;
  for (const RankSums& rank : ranks_) {
    RankActual& mean = means.emplace_back(rank.total);
    if (rank.counted == 0) continue;
    const auto count = static_cast<double>(rank.counted);
    mean.compute_seconds = rank.compute_seconds / count;
    mean.wait_seconds = rank.wait_seconds / count;
    mean.update_seconds = rank.update_seconds / count;
    mean.input_seconds = rank.input_seconds / count;
  }
  return means;
}

SectionCount StepStatistics::paced() const {
  SectionCount sum;
  for (const RankSums& rank : ranks_) {
    sum.sections += rank.total.paced.sections;
    sum.overruns += rank.total.paced.overruns;
  }
  return sum;
}

}  // namespace motley
