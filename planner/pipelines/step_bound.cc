#include "planner/pipelines/step_bound.h"

#include <algorithm>
#include <numeric>

namespace motley {
namespace {

/// Steps that are no nearer than this are not the same.
constexpr double kSame = 1 - 1e-9;

}  // namespace

StepBound::StepBound(const PackingProblem& problem, SetTimes* times, const LeastSums& sums,
                     double least)
    : problem_(problem),
      times_(times),
      sums_(sums),
      few_(few_enough_to_enumerate(problem.devices)) {
  problem_.only_least = true;
  const auto replicas = few_ ? static_cast<size_t>(problem.most_replicas) : 1;
  least_.resize(replicas);
  rests_on_.resize(replicas);
  const size_t given = few_ && problem.is_number_given ? replicas - 1 : 0;
  for (size_t at = 0; at < given; ++at) least_[at] = kNever;
  for (size_t at = given; at < replicas; ++at) find(at, least);
}

/// Of a single replica that is cut the ends exchange what is tied; that is in its bound.
void StepBound::find_single() {
  least_[0] = kNever;
  const int samples = problem_.grains * problem_.grain - problem_.missing;
  for (size_t set = 0; set < times_->count(); ++set) {
    const GroupCounts& devices = times_->devices(set);
    const int size = std::accumulate(devices.begin(), devices.end(), 0);
    if (size > problem_.most_devices) continue;
    const double seconds = times_->seconds(set, samples) + (size > 1 ? sums_.within_one() : 0);
    if (seconds >= least_[0]) continue;
    least_[0] = seconds;
    rests_on_[0] = {set};
  }
}

void StepBound::find(size_t at, double least) {
  if (few_ && at == 0) return find_single();
  if (few_) problem_.least_replicas = problem_.most_replicas = static_cast<int>(at) + 1;
  Packings packings = best_packings(problem_, *times_, least);
  least_[at] = packings.least_seconds;
  rests_on_[at] = packings.found.empty() ? Packing() : std::move(packings.found.front());
}

/// The number of replicas of which the bound is least.
size_t StepBound::least_at() const {
  const auto step = [&](size_t at) { return least_[at] + sums_.seconds(static_cast<int>(at) + 1); };
  size_t least = 0;
  for (size_t at = 1; at < least_.size(); ++at)
    if (step(at) < step(least)) least = at;
  return least;
}

bool StepBound::prove(size_t set, double seconds, int64_t most_nodes,
                      std::vector<std::pair<size_t, Pipeline>>* found) {
  bool any = false;
  for (const int missing : {0, problem_.missing}) {
    const int grains =
        times_->grains_within(set, {seconds, problem_.grain, missing, problem_.grains});
    if (grains == 0) continue;
    const int64_t before = times_->nodes();
    std::optional<Pipeline> quickest =
        times_->prove(set, grains * problem_.grain - missing, most_nodes);
    any = any || times_->nodes() > before;
    if (quickest) found->emplace_back(set, std::move(*quickest));
  }
  return any;
}

bool StepBound::tighten(double step, int64_t most_nodes,
                        std::vector<std::pair<size_t, Pipeline>>* found) {
  const int64_t before = times_->nodes();
  bool any = false;
  while (seconds(step) < step * kSame && times_->nodes() - before < most_nodes) {
    const size_t at = least_at();
    bool proved = false;
    for (const size_t set : rests_on_[at])
      proved = prove(set, least_[at] * (1 + problem_.precision), most_nodes, found) || proved;
    if (!proved) break;
    any = true;
    find(at, least_[at]);
  }
  return any;
}

void StepBound::raise(int replicas, const std::vector<double>& least_of_replicas) {
  for (size_t i = 0; few_ && i < least_of_replicas.size(); ++i) {
    const size_t at = static_cast<size_t>(replicas) - 1 + i;
    if (at < least_.size()) least_[at] = std::max(least_[at], least_of_replicas[i]);
  }
}

double StepBound::seconds(double step) const {
  if (!few_) return std::min(step, least_.front() + sums_.seconds(least_replicas(step)));
  double least = step;
  for (size_t i = 0; i < least_.size(); ++i)
    least = std::min(least, least_[i] + sums_.seconds(static_cast<int>(i) + 1));
  return least;
}

double StepBound::seconds_holding(double held, double step) const {
  const int replicas = few_ && !problem_.is_number_given ? 1 : least_replicas(step);
  const double sums = std::max(sums_.seconds(replicas), sums_.seconds_holding(held, replicas));
  return std::min(step, *std::min_element(least_.begin(), least_.end()) + sums);
}

/// Within a step no replica computes more than the most able one.
int StepBound::least_replicas(double step) const {
  if (problem_.is_number_given) return problem_.most_replicas;
  int most = 1;
  const GrainLimit limit{step, problem_.grain, problem_.missing, problem_.grains};
  for (size_t set = 0; set < times_->count(); ++set)
    most = std::max(most, times_->grains_within(set, limit));
  return (problem_.grains + most - 1) / most;
}

}  // namespace motley
