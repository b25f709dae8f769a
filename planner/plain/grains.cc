#include "planner/plain/grains.h"

#include <algorithm>

namespace motley {
namespace {

/// More grains than this make shares no finer than a profile is exact.
constexpr int kMostGrains = 2048;

std::vector<int> divisors(int number) {
  std::vector<int> found;
  for (int divisor = 1; divisor <= number / divisor; ++divisor) {
    if (number % divisor != 0) continue;
    found.push_back(divisor);
    if (divisor != number / divisor) found.push_back(number / divisor);
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

std::vector<int> candidate_grains(const PlanRequest& request, const Candidates& candidates) {
  const TrainSpec& train = request.job.train;
  if (train.grain) return {*train.grain};
  int largest = 1;
  for (const Candidate& candidate : candidates.devices) {
    largest = std::max(largest, largest_micro_batch(*candidate.profile, request.memory_headroom));
  }
  std::vector<int> grains;
  int coarsest = 1;
  for (const int grain : divisors(train.global_batch)) {
    if (grain > largest) break;
    coarsest = grain;
    if (train.global_batch / grain <= kMostGrains) grains.push_back(grain);
  }
  if (grains.empty()) grains.push_back(coarsest);
  return grains;
}

}  // namespace motley
