#include "planner/grid/foreign_costs.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "planner/pipelines/pipeline_end.h"

namespace motley {
namespace {

/// Of a layer's sizes, which may lack a degree that was measured.
double at_degree(const std::map<int, double>& sizes, int degree) {
  const auto found = sizes.find(degree);
  return found == sizes.end() ? sizes.at(1) / degree : found->second;
}

/// By sums over the layers before each.
double of_stage(const std::vector<double>& before, const GridStage& stage) {
  return before[static_cast<size_t>(stage.end)] - before[static_cast<size_t>(stage.first)];
}

Nanos nanos(double seconds) { return Nanos(std::llround(seconds * 1e9)); }

}  // namespace

ForeignCosts::ForeignCosts(const ForeignProfile& profile, std::vector<GridType> types,
                           int global_batch, double headroom)
    : profile_(profile),
      types_(std::move(types)),
      global_batch_(global_batch),
      headroom_(headroom) {
  add_sums(1);
  for (int type = 0; type < this->types(); ++type) {
    auto& times = times_.emplace_back();
    for (const ForeignTimes& one : device(type).profiles) {
      add_sums(one.tensor);
      Times& of = times[{one.micro_batch, one.tensor}];
      if (of.measured) continue;
      of = {&one, {0}};
      for (const double seconds : one.update_seconds)
        of.update_seconds.push_back(of.update_seconds.back() + seconds);
    }
  }
  find_links();
}

void ForeignCosts::add_sums(int degree) {
  Sums& sums = sums_[degree];
  if (!sums.parameters.empty()) return;
  sums = {{0}, {0}};
  for (const ForeignLayer& layer : profile_.layers) {
    sums.parameters.push_back(sums.parameters.back() + at_degree(layer.parameters, degree));
    sums.activation_bytes.push_back(sums.activation_bytes.back() +
                                    at_degree(layer.activation_bytes_per_sample, degree));
  }
}

void ForeignCosts::find_links() {
  for (int from = 0; from < types(); ++from)
    for (int to = 0; to < types(); ++to)
      for (const auto& [out, unused_sums] : sums_)
        for (const auto& [in, unused_too] : sums_)
          links_[{from, out, to, in}] = profile_.link(types_[static_cast<size_t>(from)].name, out,
                                                      types_[static_cast<size_t>(to)].name, in);
}

const ForeignDevice& ForeignCosts::device(int type) const {
  return profile_.devices.at(types_[static_cast<size_t>(type)].name);
}

const ForeignTimes& ForeignCosts::times(GridConfig config, int micro_batch) const {
  return *times_[static_cast<size_t>(config.type)].at({micro_batch, config.degree}).measured;
}

const ForeignLink* ForeignCosts::link(GridConfig from, GridConfig to) const {
  return links_.at({from.type, from.degree, to.type, to.degree});
}

int GridType::devices() const { return std::accumulate(on_hosts.begin(), on_hosts.end(), 0); }

GridGroups ForeignCosts::groups_of(int type) const {
  GridGroups groups;
  std::set<int> sizes = {1};
  for (const ForeignTimes& one : device(type).profiles)
    for (const int degree : degrees(type, one.micro_batch)) sizes.insert(degree);
  for (const int size : sizes)
    for (const int on_host : types_[static_cast<size_t>(type)].on_hosts)
      groups[size] += on_host / size;
  return groups;
}

std::vector<GridGroups> ForeignCosts::groups() const {
  std::vector<GridGroups> fleet;
  for (int type = 0; type < types(); ++type) fleet.push_back(groups_of(type));
  return fleet;
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
  for (const int degree : measured)
    if (degrees.empty() || degree % degrees.back() == 0) degrees.push_back(degree);
  return degrees;
}

double ForeignCosts::compute(GridConfig config, int micro_batch, int layer) const {
  const ForeignTimes& of = times(config, micro_batch);
  const auto at = static_cast<size_t>(layer);
  return of.forward_seconds[at] + of.backward_seconds[at];
}

double ForeignCosts::send(int layer, int micro_batch, GridConfig from, GridConfig to) const {
  const ForeignLink* between = link(from, to);
  if (!between) return kNoGridSeconds;
  return between->seconds(profile_.layers[static_cast<size_t>(layer)].output_bytes_per_sample *
                          micro_batch);
}

double ForeignCosts::update(const GridStage& stage, int micro_batch) const {
  const auto& times = times_[static_cast<size_t>(stage.config.type)];
  return of_stage(times.at({micro_batch, stage.config.degree}).update_seconds, stage);
}

double ForeignCosts::gradient_bytes(const GridStage& stage, int degree) const {
  return of_stage(sums_.at(degree).parameters, stage) * profile_.gradient_bytes_per_parameter;
}

double ForeignCosts::reduction(const GridStage& stage, GridConfig next, int replicas) const {
  if (replicas == 1) return 0;
  const ForeignLink* around = ring(stage.config.type, next.type);
  if (!around) return kNoGridSeconds;
  return 2 * (replicas - 1) *
         around->seconds(gradient_bytes(stage, stage.config.degree) / replicas);
}

/// A ring over more sends smaller parts: it takes longer where no byte of a smaller message takes
/// less than one of a larger.
bool ForeignCosts::reductions_rise() const {
  double least = kNoGridSeconds;
  for (int layer = 0; layer < layers(); ++layer) {
    const double bytes = gradient_bytes({layer, layer + 1, {}}, 1);
    if (bytes > 0) least = std::min(least, bytes);
  }
  const double all = gradient_bytes({0, layers(), {}}, 1);
  for (int type = 0; type < types() && all > 0; ++type) {
    const double parts = types_[static_cast<size_t>(type)].devices();
    if (ring(type, type) && !ring(type, type)->favours_large(least / parts, all)) return false;
  }
  return true;
}

double ForeignCosts::fixed_bytes(const GridStage& stage) const {
  return of_stage(sums_.at(stage.config.degree).parameters, stage) *
         profile_.optimizer_bytes_per_parameter;
}

double ForeignCosts::bytes_in_flight(const GridStage& stage, int micro_batch) const {
  return of_stage(sums_.at(stage.config.degree).activation_bytes, stage) * micro_batch;
}

double ForeignCosts::usable_bytes(int type) const {
  const Bytes memory = types_[static_cast<size_t>(type)].memory;
  return static_cast<double>(memory.value()) * (1 - headroom_);
}

int ForeignCosts::farthest_from_end(const GridStage& stage, int micro_batch, int passes) const {
  const double left = usable_bytes(stage.config.type) - fixed_bytes(stage);
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
  const std::vector<GridReplicas> replicas = replicas_of(plan);
  double computed = 0, updates = 0, sums = 0;
  for (const GridReplicas& own : replicas) {
    computed = std::max(computed, simulated_seconds(plan, own.configs));
    for (size_t s = 0; s < plan.stages.size(); ++s)
      updates = std::max(updates, update({plan.stages[s].first, plan.stages[s].end, own.configs[s]},
                                         plan.micro_batch));
  }
  for (size_t s = 0; s < plan.stages.size(); ++s)
    sums = std::max(sums, reduction_of(plan.stages[s], s, replicas));
  return computed + updates + sums;
}

/// When all micro-batches of a replica are through.
double ForeignCosts::simulated_seconds(const GridPlan& plan,
                                       const std::vector<GridConfig>& configs) const {
  std::vector<AlikePasses> stages;
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    const GridStage& stage = plan.stages[s];
    const ForeignTimes& of = times(configs[s], plan.micro_batch);
    double forward = 0, backward = 0;
    for (int layer = stage.first; layer < stage.end; ++layer) {
      forward += of.forward_seconds[static_cast<size_t>(layer)];
      backward += of.backward_seconds[static_cast<size_t>(layer)];
    }
    AlikePasses& timed = stages.emplace_back();
    timed.first_forward = timed.forward = timed.last_forward = nanos(forward);
    timed.backward = timed.last_backward = nanos(backward);
    if (s + 1 < plan.stages.size())
      timed.forward_travels =
          nanos(send(stage.end - 1, plan.micro_batch, configs[s], configs[s + 1]));
    if (s > 0) timed.backward_travels = stages[s - 1].forward_travels;
  }
  return seconds_of(pipeline_end(stages, passes(plan.micro_batch, plan.replicas)));
}

}  // namespace motley
