#include "planner/plain/grains.h"

#include <algorithm>

namespace motley {
namespace {

/// More grains than this make shares no finer than a profile is exact.
constexpr int kMostGrains = 2048;
/// As many sizes of micro-batch should any device have to choose from.
constexpr int kLeastSizes = 8;
/// Grains of all devices, if each had them all: what takes a second or a few, and a minute.
constexpr int64_t kFewOfAll = int64_t{1} << 26, kMostOfAll = int64_t{1} << 28;
/// Of one device, whose table has them all: gigabytes of some devices.
constexpr int kMostOfOne = 1 << 20;

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
  int largest = 1, least = train.global_batch;  // micro-batches that devices hold at most
  for (const Candidate& candidate : candidates.devices) {
    const int holds = largest_micro_batch(*candidate.profile, request.memory_headroom);
    largest = std::max(largest, holds);
    least = std::min(least, holds);
  }
  const auto devices = static_cast<int64_t>(candidates.devices.size());
  const auto in_time = static_cast<int>(train.global_batch * devices / kFewOfAll + 1);
  const int wanted = std::max(std::min(in_time, least), least / kLeastSizes);
  const auto too_many = [&](int grain) {
    const int count = train.global_batch / grain;
    return count > kMostOfOne || count * devices > kMostOfAll;
  };
  int fine = 1;
  std::vector<int> grains;
  for (const int grain : divisors(train.global_batch)) {
    if (grain > largest) break;
    if (grain <= wanted || too_many(fine)) fine = grain;
    if (train.global_batch / grain <= kMostGrains) grains.push_back(grain);
  }
  if (grains.empty() || fine < grains.front()) grains.insert(grains.begin(), fine);
  return grains;
}

}  // namespace motley
