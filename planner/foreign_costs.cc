#include "planner/foreign_costs.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "planner/pipeline_simulation.h"

namespace motley {
namespace {

/// Of a layer's sizes, which may lack a degree that was measured.
double at_degree(const std::map<int, double>& sizes, int degree) {
  const auto found = sizes.find(degree);
  return found == sizes.end() ? sizes.at(1) / degree : found->second;
}

Nanos nanos(double seconds) { return Nanos(std::llround(seconds * 1e9)); }

}  // namespace

ForeignCosts::ForeignCosts(const ForeignProfile& profile, std::vector<GridType> types,
                           int global_batch, double headroom)
    : profile_(profile),
      types_(std::move(types)),
      global_batch_(global_batch),
      headroom_(headroom) {}

const ForeignDevice& ForeignCosts::device(int type) const {
  return profile_.devices.at(types_[static_cast<size_t>(type)].name);
}

const ForeignTimes& ForeignCosts::times(GridConfig config, int micro_batch) const {
  return *device(config.type).find(micro_batch, config.degree);
}

const ForeignLink* ForeignCosts::link(GridConfig from, GridConfig to) const {
  return profile_.link(types_[static_cast<size_t>(from.type)].name, from.degree,
                       types_[static_cast<size_t>(to.type)].name, to.degree);
}

std::vector<int> ForeignCosts::devices() const {
  std::vector<int> devices;
  for (const GridType& type : types_) devices.push_back(type.devices);
  return devices;
}

std::vector<int> ForeignCosts::micro_batches() const {
  std::set<int> sizes;
  for (int type = 0; type < types(); ++type)
    for (const ForeignTimes& one : device(type).profiles) sizes.insert(one.micro_batch);
  return {sizes.begin(), sizes.end()};
}

std::vector<int> ForeignCosts::degrees(int type, int micro_batch) const {
  std::set<int> measured;
  for (const ForeignTimes& one : device(type).profiles)
    if (one.micro_batch == micro_batch) measured.insert(one.tensor);
  std::vector<int> degrees;
  const int on_host = types_[static_cast<size_t>(type)].on_host;
  for (const int degree : measured)
    if (on_host % degree == 0 && (degrees.empty() || degree % degrees.back() == 0))
      degrees.push_back(degree);
  return degrees;
}

double ForeignCosts::compute(GridConfig config, int micro_batch, int layer) const {
  const ForeignTimes& of = times(config, micro_batch);
  const auto at = static_cast<size_t>(layer);
  return of.forward_seconds[at] + of.backward_seconds[at];
}

double ForeignCosts::send(int layer, int micro_batch, GridConfig from, GridConfig to) const {
  const ForeignLink* between = link(from, to);
  if (!between) return kNoLinkSeconds;
  return between->seconds(profile_.layers[static_cast<size_t>(layer)].output_bytes_per_sample *
                          micro_batch);
}

double ForeignCosts::update(const GridStage& stage, int micro_batch) const {
  const std::vector<double>& seconds = times(stage.config, micro_batch).update_seconds;
  double sum = 0;
  for (int layer = stage.first; layer < stage.end; ++layer)
    sum += seconds[static_cast<size_t>(layer)];
  return sum;
}

double ForeignCosts::reduction(const GridStage& stage, int replicas) const {
  if (replicas == 1) return 0;
  const GridConfig one{stage.config.type, 1};
  const ForeignLink* around = link(one, one);
  if (!around) return kNoLinkSeconds;
  double bytes = 0;
  for (int layer = stage.first; layer < stage.end; ++layer)
    bytes +=
        at_degree(profile_.layers[static_cast<size_t>(layer)].parameters, stage.config.degree) *
        profile_.gradient_bytes_per_parameter;
  return 2 * (replicas - 1) * around->seconds(bytes / replicas);
}

double ForeignCosts::fixed_bytes(const GridStage& stage) const {
  double bytes = 0;
  for (int layer = stage.first; layer < stage.end; ++layer)
    bytes +=
        at_degree(profile_.layers[static_cast<size_t>(layer)].parameters, stage.config.degree) *
        profile_.optimizer_bytes_per_parameter;
  return bytes;
}

double ForeignCosts::bytes_in_flight(const GridStage& stage, int micro_batch) const {
  double bytes = 0;
  for (int layer = stage.first; layer < stage.end; ++layer)
    bytes += at_degree(profile_.layers[static_cast<size_t>(layer)].activation_bytes_per_sample,
                       stage.config.degree) *
             micro_batch;
  return bytes;
}

int ForeignCosts::farthest_from_end(const GridStage& stage, int micro_batch, int passes) const {
  const double usable =
      static_cast<double>(device(stage.config.type).memory.value()) * (1 - headroom_);
  const double left = usable - fixed_bytes(stage);
  const double in_flight = bytes_in_flight(stage, micro_batch);
  if (left < in_flight) return 0;
  if (left >= in_flight * std::min(passes, layers())) return layers();
  return static_cast<int>(left / in_flight);
}

/// Activations on their way forward and gradients on theirs back. In 1F1B as many micro-batches are
/// under way as stages follow: a round trip costs each of them its part.
SendWeights ForeignCosts::weights(int from_end, bool) const {
  return from_end == 1 ? SendWeights{} : SendWeights{0, 2, 0, 2};
}

double ForeignCosts::simulated_seconds(const GridPlan& plan) const {
  const auto count = static_cast<size_t>(passes(plan.micro_batch, plan.replicas));
  std::vector<StageTimes> stages;
  double end = 0, sums = 0;
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    const GridStage& stage = plan.stages[s];
    const ForeignTimes& of = times(stage.config, plan.micro_batch);
    double forward = 0, backward = 0;
    for (int layer = stage.first; layer < stage.end; ++layer) {
      forward += of.forward_seconds[static_cast<size_t>(layer)];
      backward += of.backward_seconds[static_cast<size_t>(layer)];
    }
    StageTimes& timed = stages.emplace_back();
    timed.forward.assign(count, nanos(forward));
    timed.backward.assign(count, nanos(backward));
    if (s + 1 < plan.stages.size())
      timed.forward_travels =
          nanos(send(stage.end - 1, plan.micro_batch, stage.config, plan.stages[s + 1].config));
    if (s > 0) timed.backward_travels = stages[s - 1].forward_travels;
    end = std::max(end, update(stage, plan.micro_batch));
    sums = std::max(sums, reduction(stage, plan.replicas));
  }
  return seconds_of(simulate_step({stages})) + end + sums;
}

}  // namespace motley
