#include "planner/pipelines/step_bound.h"

#include <algorithm>
#include <numeric>

namespace motley {
namespace {

/// Steps that are no nearer than this are not the same.
constexpr double kSame = 1 - 1e-9;
/// Of many devices, larger numbers of replicas that are no further from each other are bounded
/// together.
constexpr int kFewReplicas = 8;
constexpr double kTogether = 1.25;
/// And bounds of these, and of many sets of few, as precise as that.
constexpr double kPrecisely = 4e-3;

}  // namespace

StepBound::StepBound(const PackingProblem& problem, SetTimes* times, const LeastSums& sums,
                     const HostSums& hosts, double least)
    : problem_(problem),
      times_(times),
      sums_(sums),
      hosts_(hosts),
      few_(few_enough_to_enumerate(problem.devices)) {
  problem_.only_least = true;
  if (!few_ || times_->are_many()) problem_.precision = std::max(problem_.precision, kPrecisely);
  double per_sample = kNever;  // of any replica
  for (size_t set = 0; set < times_->count(); ++set)
    per_sample = std::min(per_sample, times_->seconds_per_sample(set));
  const int samples = problem.grains * problem.grain - problem.missing;
  const int most = problem.most_replicas;
  for (int low = problem.is_number_given() ? most : 1, high = low; low <= most; low = high + 1) {
    high = few_ || low < kFewReplicas ? low : std::min(most, static_cast<int>(low * kTogether));
    // No replica is quicker than the quickest with an even share.
    Numbers& numbers = numbers_.emplace_back();
    numbers.low = low;
    numbers.high = high;
    numbers.least = std::max(least, per_sample * samples / high);
    if (high == 1) single_least_ = numbers.least;
    numbers.sums = kNever;
    for (int replicas = low; replicas <= high; ++replicas)
      numbers.sums = std::min(numbers.sums, sums_.seconds(replicas));
  }
}

/// Of a single replica that is cut the ends exchange what is tied.
void StepBound::find_single(Numbers* numbers) {
  double least = kNever, computed = kNever;  // of a step, and of its quickest set
  const int samples = problem_.grains * problem_.grain - problem_.missing;
  for (size_t set = times_->count(); set-- > 0;) {  // the quick ones first
    const GroupCounts& devices = times_->devices(set);
    const int size = std::accumulate(devices.begin(), devices.end(), 0);
    const int more = size - times_->stages(set);
    if (size > problem_.most_devices || more < problem_.least_more || more > problem_.most_more)
      continue;
    if (times_->seconds_at_least(set, samples) >= least) continue;
    const double ends = times_->stages(set) > 1 ? sums_.within_one() : 0;
    const double seconds = std::max(single_least_, times_->seconds(set, samples));
    if (seconds >= least || hosts_.step_seconds(seconds, ends) >= least) continue;
    least = hosts_.step_seconds(seconds, ends);
    computed = seconds;
    numbers->sums = ends;
    numbers->rests_on = {set};
  }
  numbers->least = computed;
  for (const size_t set : numbers->rests_on)  // that it may be used is known by being asked
    times_->grains_within(set, {numbers->least, problem_.grain, problem_.missing, problem_.grains});
}

/// A packing that takes so long, or longer, makes no step quicker than `step`.
double StepBound::computed_within(double step, double sums) const {
  constexpr int kHalves = 40;
  double low = 0, high = step;
  for (int i = 0; i < kHalves && step < kNobodyWaits; ++i) {
    const double middle = low + (high - low) / 2;
    (hosts_.step_seconds(middle, sums) < step ? low : high) = middle;
  }
  return high;
}

void StepBound::find(Numbers* numbers, double step) {
  numbers->up_to = step;
  if (numbers->high == 1) return find_single(numbers);
  problem_.least_replicas = few_ ? numbers->high : 1;
  problem_.most_replicas = numbers->high;
  problem_.limit = computed_within(step, numbers->sums);
  Packings packings = best_packings(problem_, *times_, numbers->least);
  numbers->least = std::max(numbers->least, packings.least_seconds);
  numbers->rests_on = packings.found.empty() ? Packing() : std::move(packings.found.front());
}

template <class StepOf>
StepBound::Numbers& StepBound::least_numbers(double step, StepOf step_of) {
  while (true) {
    Numbers& least = *std::min_element(
        numbers_.begin(), numbers_.end(),
        [&](const Numbers& a, const Numbers& b) { return step_of(a) < step_of(b); });
    if (step_of(least) >= step || is_known(least, step)) return least;
    find(&least, step);
  }
}

StepBound::Numbers& StepBound::least_numbers(double step) {
  return least_numbers(step, [this](const Numbers& numbers) { return step_of(numbers); });
}

double StepBound::target_seconds(double step) { return least_numbers(step).least; }

double StepBound::target_seconds(int replicas, double step) {
  for (Numbers& numbers : numbers_) {
    if (numbers.high < replicas) continue;
    if (!is_known(numbers, step)) find(&numbers, step);
    return step_of(numbers) < step ? numbers.least : kNever;
  }
  return kNever;
}

std::vector<StepBound::Numbers> StepBound::likely(double step, size_t most) {
  const auto seconds = [&](const Numbers& numbers) { return step_of(numbers); };
  std::vector<Numbers> likely;
  for (Numbers& numbers : numbers_) {
    if (seconds(numbers) < step * kSame && !is_known(numbers, step)) find(&numbers, step);
    if (seconds(numbers) < step * kSame) likely.push_back(numbers);
  }
  std::stable_sort(likely.begin(), likely.end(),
                   [&](const Numbers& a, const Numbers& b) { return seconds(a) < seconds(b); });
  likely.resize(std::min(likely.size(), most));
  return likely;
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
    Numbers& numbers = least_numbers(step);
    bool proved = false;
    for (const size_t set : numbers.rests_on)
      proved = prove(set, numbers.least * (1 + problem_.precision), most_nodes, found) || proved;
    if (!proved) break;
    any = true;
    find(&numbers, step);
  }
  return any;
}

void StepBound::raise(int replicas, const std::vector<double>& least_of_replicas) {
  for (size_t i = 0; few_ && i < least_of_replicas.size(); ++i)
    for (Numbers& numbers : numbers_) {
      if (numbers.low != replicas + static_cast<int>(i)) continue;
      if (numbers.high > 1) {
        numbers.least = std::max(numbers.least, least_of_replicas[i]);
      } else if (least_of_replicas[i] > single_least_) {
        single_least_ = least_of_replicas[i];
        numbers.rests_on.clear();  // with it another set may be the quickest
        numbers.up_to = 0;
      }
    }
}

double StepBound::seconds(double step) { return std::min(step, step_of(least_numbers(step))); }

double StepBound::seconds_holding(double held, double step) {
  const auto holding = [&](const Numbers& numbers) {
    const double sums = std::min(sums_.seconds_holding(held, numbers.low),
                                 sums_.seconds_holding(held, numbers.high));
    return hosts_.step_seconds(numbers.least, std::max(numbers.sums, sums));
  };
  return std::min(step, holding(least_numbers(step, holding)));
}

}  // namespace motley
