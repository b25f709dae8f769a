#include "tests/bench/published_costs.h"

#include <algorithm>

namespace motley {
namespace {

constexpr double kBucketBytes = 500e6;
constexpr int kLargestSharedDegree = 4;
/// Of the last stage, and of the first of more than so many, what is sent counts twice.
constexpr int kFewStages = 3;

double besides(int degree) { return degree == 1 ? 2e9 : 3e9; }

}  // namespace

PublishedCosts::PublishedCosts(const ForeignProfile& profile, std::vector<GridType> types)
    : ForeignCosts(profile, std::move(types), profile.global_batch, 0) {}

double PublishedCosts::update(const GridStage& stage, int micro_batch) const {
  return times(stage.config, micro_batch).update_seconds[static_cast<size_t>(stage.first)];
}

double PublishedCosts::reduction(const GridStage& stage, GridConfig next, int replicas) const {
  if (replicas == 1) return 0;
  const ForeignLink* around = ring(stage.config.type, next.type);
  if (!around) return kNoGridSeconds;
  double bytes = gradient_bytes(stage, 1) / std::min(kLargestSharedDegree, stage.config.degree);
  double seconds = 0;
  for (; bytes > 0; bytes -= kBucketBytes)
    seconds += 2 * (replicas - 1) * around->seconds(std::min(bytes, kBucketBytes) / replicas);
  return seconds;
}

int PublishedCosts::farthest_from_end(const GridStage& stage, int micro_batch, int) const {
  const double left = static_cast<double>(device(stage.config.type).memory.value()) -
                      besides(stage.config.degree) - fixed_bytes(stage);
  const double in_flight = bytes_in_flight(stage, micro_batch);
  if (left < in_flight) return 0;
  return left >= in_flight * layers() ? layers() : static_cast<int>(left / in_flight);
}

SendWeights PublishedCosts::weights(int from_end, bool first) const {
  if (first && from_end == 1) return {};
  if (first) {
    const double out = from_end <= kFewStages ? 1 : 2;
    return {0, out, 0, out};
  }
  if (from_end == 1) return {2, 0, 2, 0};
  return {1, 1, 1, 1};
}

}  // namespace motley
