#include "core/step_statistics.h"

#include "core/median.h"

namespace motley {

StepStatistics::StepStatistics(const Plan& plan) : ranks_(plan.ranks.size()) {
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
  if (report.special || rank.seen <= kWarmUpSteps) return;
  ++rank.counted;
  rank.compute_seconds += report.compute_seconds;
  rank.wait_seconds += report.wait_seconds;
  rank.update_seconds += report.update_seconds;
}

std::optional<double> StepStatistics::median_step_seconds(int warm_up) const {
  std::vector<double> ordinary;
  for (size_t i = static_cast<size_t>(warm_up); i < steps_.size(); ++i)
    if (!steps_[i].special) ordinary.push_back(steps_[i].step_seconds);
  return median(std::move(ordinary));
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
