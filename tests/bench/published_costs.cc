#include "tests/bench/published_costs.h"

#include <algorithm>
#include <set>

namespace motley {
namespace {

/// Where nobody measured a link: finite, as it may count 0 times.
constexpr double kNoLinkSeconds = 1e18;
constexpr double kBucketBytes = 500e6;
constexpr int kLargestSharedDegree = 4;
/// Of the last stage and of the first of more than so many stages, what is sent counts twice.
constexpr int kFewStages = 3;

double besides(int degree) { return degree == 1 ? 2e9 : 3e9; }

/// Of a layer's sizes, which may lack a degree that was measured.
double at_degree(const std::map<int, double>& sizes, int degree) {
  const auto found = sizes.find(degree);
  return found == sizes.end() ? sizes.at(1) / degree : found->second;
}

}  // namespace

PublishedCosts::PublishedCosts(const ForeignProfile& profile, std::vector<std::string> types)
    : profile_(profile), types_(std::move(types)) {}

const ForeignDevice& PublishedCosts::device(int type) const {
  return profile_.devices.at(types_[static_cast<size_t>(type)]);
}

const ForeignTimes& PublishedCosts::times(GridConfig config, int micro_batch) const {
  return *device(config.type).find(micro_batch, config.degree);
}

std::vector<int> PublishedCosts::micro_batches() const {
  std::set<int> sizes;
  for (int type = 0; type < types(); ++type)
    for (const ForeignTimes& one : device(type).profiles) sizes.insert(one.micro_batch);
  return {sizes.begin(), sizes.end()};
}

std::vector<int> PublishedCosts::degrees(int type, int micro_batch) const {
  std::set<int> degrees;
  for (const ForeignTimes& one : device(type).profiles)
    if (one.micro_batch == micro_batch) degrees.insert(one.tensor);
  return {degrees.begin(), degrees.end()};
}

double PublishedCosts::compute(GridConfig config, int micro_batch, int layer) const {
  const ForeignTimes& of = times(config, micro_batch);
  const auto at = static_cast<size_t>(layer);
  return of.forward_seconds[at] + of.backward_seconds[at];
}

double PublishedCosts::send(int layer, int micro_batch, GridConfig from, GridConfig to) const {
  const ForeignLink* link = profile_.link(types_[static_cast<size_t>(from.type)], from.degree,
                                          types_[static_cast<size_t>(to.type)], to.degree);
  if (!link) return kNoLinkSeconds;
  return link->seconds(profile_.layers[static_cast<size_t>(layer)].output_bytes_per_sample *
                       micro_batch);
}

double PublishedCosts::update(const GridStage& stage, int micro_batch) const {
  return times(stage.config, micro_batch).update_seconds[static_cast<size_t>(stage.first)];
}

double PublishedCosts::reduction(const GridStage& stage, int replicas) const {
  if (replicas == 1) return 0;
  const std::string& type = types_[static_cast<size_t>(stage.config.type)];
  const ForeignLink* link = profile_.link(type, 1, type, 1);
  if (!link) return kNoLinkSeconds;
  double bytes = 0;
  for (int layer = stage.first; layer < stage.end; ++layer)
    bytes += profile_.layers[static_cast<size_t>(layer)].parameters.at(1) *
             profile_.gradient_bytes_per_parameter;
  bytes /= std::min(kLargestSharedDegree, stage.config.degree);
  double seconds = 0;
  for (; bytes > 0; bytes -= kBucketBytes)
    seconds += 2 * (replicas - 1) * link->seconds(std::min(bytes, kBucketBytes) / replicas);
  return seconds;
}

int PublishedCosts::farthest_from_end(const GridStage& stage, int micro_batch, int) const {
  double fixed = besides(stage.config.degree), in_flight = 0;
  for (int number = stage.first; number < stage.end; ++number) {
    const ForeignLayer& layer = profile_.layers[static_cast<size_t>(number)];
    fixed +=
        at_degree(layer.parameters, stage.config.degree) * profile_.optimizer_bytes_per_parameter;
    in_flight += at_degree(layer.activation_bytes_per_sample, stage.config.degree) * micro_batch;
  }
  const double left = static_cast<double>(device(stage.config.type).memory.value()) - fixed;
  if (left < in_flight) return 0;
  return in_flight > 0 ? static_cast<int>(std::min(left / in_flight, 1e6)) : 1'000'000;
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
