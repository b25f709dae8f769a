#include "planner/pipelines/pipeline_costs.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "core/model.h"
#include "core/pipeline.h"
#include "core/spec/precisions.h"
#include "planner/costs/cost_model.h"
#include "planner/costs/links.h"
#include "planner/plain/device_index.h"

namespace motley {
namespace {

/// Whether all that was measured of both is the same.
bool are_alike(const DeviceProfile& a, DeviceProfile b) {
  b.device = a.device;
  b.identity = a.identity;
  return a == b;
}

}  // namespace

Result<std::vector<DeviceGroup>> group_devices(const PlanRequest& request, GroupBy by) {
  MOTLEY_TRY(const FleetSpec fleet, admitted(request.fleet, request.job));
  const DeviceIndex index(fleet, request.profile);
  std::vector<DeviceGroup> groups;
  for (const DeviceSpec& spec : request.fleet.devices) {
    if (index.spec(spec.id) == nullptr) continue;
    const DeviceProfile* const profile = index.profile(spec.id);
    if (profile == nullptr)
      return fail(ErrorCode::kInvalidSpec, "the profile lacks " + spec.id + " (" + spec.type +
                                               "); measure it with `motley profile`");
    const Precision precision = precision_allowed(request.job, spec, profile->precision);
    const auto same = [&](const DeviceGroup& group) {
      const DeviceSpec& other = *group.devices.front();
      return (by == GroupBy::kType || spec.host == other.host) && spec.type == other.type &&
             precision == group.precision && are_alike(*group.profile, *profile);
    };
    auto group = std::find_if(groups.begin(), groups.end(), same);
    if (group == groups.end()) {
      groups.push_back({.devices = {}, .profile = profile, .precision = precision});
      group = groups.end() - 1;
    }
    group->devices.push_back(&spec);
  }
  return groups;
}

int PipelineCosts::device_groups() const {
  return static_cast<int>(std::count_if(
      groups_.begin(), groups_.end(), [](const Group& group) { return group.shared_by.empty(); }));
}

size_t PipelineCosts::kind_of(LayerIndex layer) const {
  if (layer == 0) return 0;
  return layer + 1 < layers_ ? 1 : 2;
}

Result<PipelineCosts> PipelineCosts::make(const PlanRequest& request,
                                          const std::vector<DeviceGroup>& groups,
                                          const std::vector<int>& micro_batches,
                                          const CountLayers& count, Recompute recompute) {
  PipelineCosts costs;
  costs.recompute_ = recompute;
  costs.model_ = &request.job.model;
  costs.layers_ = layer_count(request.job.model);
  costs.held_.assign(kKinds, 0);
  for (const LogicalTensor& tensor : logical_tensors(request.job.model)) {
    costs.elements_ += tensor.elements();
    if (tensor.layers.size() > 1)
      costs.tied_ += tensor.elements();
    else if (tensor.layers.front() < 2 || tensor.layers.front() + 1 == costs.layers_)  // one block
      costs.held_[costs.kind_of(tensor.layers.front())] += tensor.elements();
  }
  const int most = *std::max_element(micro_batches.begin(), micro_batches.end());
  for (const DeviceGroup& from : groups) {
    Group& group = costs.groups_.emplace_back();
    group.profile = from.profile;
    group.begins_seconds = from.profile->step_overhead_seconds;
    group.update_seconds = from.profile->update_seconds;
    for (const DeviceSpec* device : from.devices) ++group.hosts[device->host];
    group.precision = from.precision;
    group.driven = kind_driven(request.job, *from.devices.front());
    group.usable = usable_memory(*from.profile, request.memory_headroom);
    MOTLEY_TRY_VOID(costs.measure(request, most, &group));
    if (!group.priced || !count) continue;
    MOTLEY_TRY_VOID(costs.count_memory(count, micro_batches, &group));
    if (request.host_state && from.devices.front()->kind == DeviceKind::kCuda)
      group.host_update_seconds = from.profile->host_update_seconds;
  }
  costs.find_travel(request);
  return costs;
}

Result<Unit> PipelineCosts::measure(const PlanRequest& request, int most_samples, Group* group) {
  const LayerIndex last = layers_ - 1;
  const LayerIndex example[kKinds] = {0, 1, last};
  group->least_per_sample.fill(std::numeric_limits<double>::infinity());
  for (size_t kind = 0; kind < kKinds; ++kind) {
    StagePlan layer;
    layer.first_layer = layer.last_layer = example[kind];
    layer.ranks = {Rank(0)};
    layer.shares = {1.0};
    for (int samples = 1; samples <= most_samples; ++samples) {
      const auto seconds = pass_seconds(*group->profile, request.job.model, layer, 0, samples);
      if (!seconds) return Unit{};  // it was not measured: of no use in a pipeline
      group->passes[kind].push_back(*seconds);
      double& least = group->least_per_sample[kind];
      least = std::min(least, (seconds->forward + seconds->backward) / samples);
    }
  }
  for (size_t kind = 0; kind < kKinds; ++kind) group->rests[kind] = group->passes[kind];
  be_no_slower_than_whole(most_samples, group);
  group->least_of_any_per_sample = group->least_per_sample;
  MOTLEY_TRY_VOID(measure_again(request, most_samples, group));
  measure_shares(request, most_samples, group);
  group->priced = true;
  return Unit{};
}

/// Where that was measured.
Result<Unit> PipelineCosts::measure_again(const PlanRequest& request, int most_samples,
                                          Group* group) const {
  if (recompute_ == Recompute::kNone) return Unit{};
  StagePlan block;
  block.first_layer = block.last_layer = 1;
  block.ranks = {Rank(0)};
  block.shares = {1.0};
  block.recompute = {recompute_};
  std::vector<double> again;
  for (int samples = 1; samples <= most_samples; ++samples) {
    const auto seconds = pass_seconds(*group->profile, request.job.model, block, 0, samples);
    if (!seconds) return Unit{};
    again.push_back(seconds->backward - group->passes[1][index(samples) - 1].backward);
  }
  group->again = std::move(again);
  return Unit{};
}

/// Whole replicas are priced by the curve of the whole model, which may be below the sum of layers.
void PipelineCosts::be_no_slower_than_whole(int most_samples, Group* group) const {
  const LayerCurve* const whole = group->profile->curve("model");
  if (whole == nullptr) return;
  const LayerCounts all = counts_of({0, 0, layers_ - 1});
  double sum = 0;
  for (size_t kind = 0; kind < kKinds; ++kind) sum += all[kind] * group->least_per_sample[kind];
  double least = sum;
  for (int samples = 1; samples <= most_samples; ++samples)
    least = std::min(least, whole->seconds_at(samples) / samples);
  for (double& per_sample : group->least_per_sample) per_sample *= least / sum;
}

namespace {

/// Devices of a group by number of the host among those that have links.
std::vector<int> by_host(const std::map<std::string, int>& hosts, const LinkIndex& links) {
  std::vector<int> counts;
  for (const auto& [host, devices] : hosts) {
    const int number = links.number(host);
    if (number < 0) continue;
    if (number >= std::ssize(counts)) counts.resize(static_cast<size_t>(number) + 1);
    counts[static_cast<size_t>(number)] = devices;
  }
  return counts;
}

/// Whether each host has a link.
bool counts_all(const std::map<std::string, int>& hosts, const std::vector<int>& counts) {
  const auto linked = std::count_if(counts.begin(), counts.end(), [](int own) { return own > 0; });
  return linked == std::ssize(hosts);
}

}  // namespace

/// What nobody measured takes no time, so that where a link lacks, that is the quickest way.
void PipelineCosts::find_travel(const PlanRequest& request) {
  const LinkIndex links(request.profile.links);
  std::vector<std::vector<int>> counts;
  for (const Group& group : groups_) counts.push_back(by_host(group.hosts, links));
  for (size_t from = 0; from < groups_.size(); ++from)
    for (size_t to = 0; to < groups_.size(); ++to) {
      Way& way = ways_.emplace_back();
      Way quickest{std::numeric_limits<double>::infinity(), 0};
      bool all = counts_all(groups_[from].hosts, counts[from]) &&
                 counts_all(groups_[to].hosts, counts[to]);
      for (size_t a = 0; a < counts[from].size(); ++a)
        for (size_t b = 0; b < counts[to].size(); ++b) {
          if (counts[from][a] == 0 || counts[to][b] == 0) continue;
          const LinkProfile* link = links.between(static_cast<int>(a), static_cast<int>(b));
          if (link == nullptr) {
            all = all && from == to && a == b && counts[from][a] < 2;
            continue;
          }
          way.be_no_quicker_than(link->latency_seconds, link->bytes_per_second);
          quickest.be_no_slower_than(link->latency_seconds, link->bytes_per_second);
        }
      quickest_ways_.push_back(all && quickest.bytes_per_second > 0 ? quickest : Way());
    }
  for (Group& group : groups_) find_ways_within(request, &group);
}

PassSeconds PipelineCosts::pass_of(const LayerCounts& layers,
                                   const std::vector<PassSeconds>* by_samples, int samples) {
  PassSeconds sum;
  for (size_t kind = 0; kind < kKinds; ++kind) {
    const PassSeconds& one = by_samples[kind][index(samples) - 1];
    sum.forward += layers[kind] * one.forward;
    sum.backward += layers[kind] * one.backward;
  }
  return sum;
}

PassSeconds PipelineCosts::pass(const PipelineStage& stage, int samples) const {
  if (tensor_set(stage.group) != nullptr) return shared_pass(stage, samples, {});
  return pass_of(counts_of(stage), groups_[index(stage.group)].passes, samples);
}

PassSeconds PipelineCosts::last_pass(const PipelineStage& stage, int samples) const {
  if (tensor_set(stage.group) != nullptr) return shared_pass(stage, samples, {});
  return pass_of(counts_of(stage), groups_[index(stage.group)].rests, samples);
}

void PipelineCosts::rise_with_samples() {
  const auto rise = [](std::vector<PassSeconds>* seconds) {
    for (size_t i = seconds->size(); i-- > 1;) {
      PassSeconds& less = (*seconds)[i - 1];
      less.forward = std::min(less.forward, (*seconds)[i].forward);
      less.backward = std::min(less.backward, (*seconds)[i].backward);
    }
  };
  for (Group& group : groups_)
    for (size_t kind = 0; kind < kKinds; ++kind) {
      rise(&group.passes[kind]);
      rise(&group.rests[kind]);
    }
  for (Group& group : groups_)
    for (size_t i = group.again.size(); i-- > 1;)
      group.again[i - 1] = std::min(group.again[i - 1], group.again[i]);
}

double PipelineCosts::least_part_of_rest(int micro_batch, int samples) const {
  double least = 1;
  for (const Group& group : groups_)
    for (size_t kind = 0; kind < kKinds && group.priced; ++kind) {
      const PassSeconds& rest = group.rests[kind][index(samples) - 1];
      const PassSeconds& full = group.passes[kind][index(micro_batch) - 1];
      if (rest.forward < least * full.forward) least = rest.forward / full.forward;
      if (rest.backward < least * full.backward) least = rest.backward / full.backward;
    }
  for (const Group& group : groups_) {
    if (group.again.empty()) continue;
    const double rest = group.again[index(samples) - 1], full = group.again[index(micro_batch) - 1];
    if (rest < least * full) least = rest / full;
  }
  return least;
}

double PipelineCosts::held(const PipelineStage& stage) const {
  if (const TensorSet* set = tensor_set(stage.group)) {
    double most = 0;
    for (int member = 0; member < set->size(); ++member)
      most = std::max(most, shared_held(stage, member));
    return most;
  }
  const LayerCounts counts = counts_of(stage);
  int64_t held = counts[0] + counts[2] > 0 ? tied_ : 0;
  for (size_t kind = 0; kind < kKinds; ++kind) held += counts[kind] * held_[kind];
  return static_cast<double>(held) / static_cast<double>(elements_);
}

bool PipelineCosts::keeps_state_in_host(const Held& held, int again) const {
  const Group& own = groups_[index(held.group)];
  if (own.host_update_seconds <= 0) return false;
  const StageBytes stage = bytes(held, again);
  return !has_room(own, stage, stage.sum() + stage.state);
}

bool PipelineCosts::keeps_state_in_host(const PipelineStage& stage, int number, int micro_batch,
                                        int in_flight, int again) const {
  const auto [group, heads] = member(stage.group, number);
  return keeps_state_in_host({group, heads, counts_of(stage), micro_batch, in_flight}, again);
}

double PipelineCosts::update_seconds(const Held& held, int again) const {
  const Group& own = groups_[index(held.group)];
  return keeps_state_in_host(held, again) ? own.host_update_seconds : own.update_seconds;
}

double PipelineCosts::update_seconds(const PipelineStage& stage, int micro_batch, int in_flight,
                                     int again) const {
  if (is_shared_for_free()) return 0;
  const LayerCounts layers = counts_of(stage);
  const TensorSet* const set = tensor_set(stage.group);
  if (set == nullptr)
    return update_seconds({stage.group, 0, layers, micro_batch, in_flight}, again) * held(stage);
  double slowest = 0;
  for (int number = 0; number < set->size(); ++number) {
    const auto [group, heads] = member(stage.group, number);
    const double all = update_seconds({group, heads, layers, micro_batch, in_flight}, again);
    slowest = std::max(slowest, all * shared_held(stage, number));
  }
  return slowest;
}

Nanos PipelineCosts::travel(int sender, int receiver, int samples) const {
  const int from = face(sender), to = face(receiver);
  const Way& way = ways_[index(from) * groups_.size() + index(to)];
  const int element =
      reduced_bytes(carried(groups_[index(from)].precision, groups_[index(to)].precision));
  const double bytes = 1.0 * samples * model_->context * model_->width * element;
  return nanos_of_seconds(way.latency_seconds + bytes / way.bytes_per_second);
}

AlikePasses PipelineCosts::passes(const PipelineStage& stage, int number, int stages,
                                  int micro_batch, int samples) const {
  if (tensor_set(stage.group) != nullptr)
    return shared_passes(stage, number, stages, micro_batch, samples);
  const int count = (samples + micro_batch - 1) / micro_batch;
  const int begun = most_in_flight(stages, 0, count);
  const int last = samples - (count - 1) * micro_batch;
  const PassSeconds rest = last == micro_batch ? pass(stage, micro_batch) : last_pass(stage, last);
  const PassSeconds full = count > 1 ? pass(stage, micro_batch) : rest;
  const double begins = this->begins(stage.group);
  const double before = number > 0 ? begins : 0, after = number + 1 < stages ? begins : 0;
  const int blocks = blocks_again(stage, number, stages, micro_batch, samples);
  const auto again = [&](int passed) {
    return blocks > 0 ? blocks * groups_[index(stage.group)].again[index(passed) - 1] : 0;
  };
  return {
      .first_forward = nanos_of_seconds(full.forward + begins),
      .forward = nanos_of_seconds(full.forward + before),
      .last_forward = nanos_of_seconds(rest.forward + (count <= begun ? begins : before)),
      .backward = nanos_of_seconds(full.backward + again(count > 1 ? micro_batch : last) + after),
      .last_backward = nanos_of_seconds(rest.backward + again(last) + after),
      .ready = nanos_of_seconds(
          update_seconds(stage, micro_batch, most_in_flight(stages, number, count), blocks))};
}

double PipelineCosts::seconds(const Pipeline& pipeline, int samples) const {
  const int group = pipeline.stages.front().group;
  const DeviceProfile& first = *groups_[index(face(group))].profile;
  const int micro_batch = std::min(samples, pipeline.micro_batch);
  double whole = std::numeric_limits<double>::infinity();
  if (pipeline.stages.size() == 1 && group < groups() && shared_by(group).empty() &&
      first.curve("model") != nullptr &&
      blocks_again(pipeline.stages.front(), 0, 1, pipeline.micro_batch, samples) == 0) {
    const double update = update_seconds(pipeline.stages.front(), pipeline.micro_batch, 1, 0);
    whole = section_seconds(device_seconds(first, samples, micro_batch), update);
    if (!is_shared_for_free()) return whole;
  }
  const auto stages = static_cast<int>(pipeline.stages.size());
  std::vector<AlikePasses> all;
  for (int s = 0; s < stages; ++s) {
    const int own = pipeline.stages[index(s)].group;
    all.push_back(passes(pipeline.stages[index(s)], s, stages, pipeline.micro_batch, samples));
    if (s + 1 < stages)
      all.back().forward_travels = travel(own, pipeline.stages[index(s + 1)].group, micro_batch);
    if (s > 0)
      all.back().backward_travels = travel(own, pipeline.stages[index(s - 1)].group, micro_batch);
  }
  const int count = (samples + micro_batch - 1) / micro_batch;
  return std::min(whole, seconds_of(pipeline_end(all, count)));
}

double PipelineCosts::best_paid(const Group::Least& own, const Group::Least& prices) {
  double most = 0;
  for (size_t kind = 0; kind < kKinds; ++kind) most = std::max(most, prices[kind] / own[kind]);
  return most;
}

double PipelineCosts::wanted(const Group::Least& prices, int samples) const {
  const LayerCounts all = counts_of({0, 0, layers_ - 1});
  double wanted = 0;
  for (size_t kind = 0; kind < kKinds; ++kind) wanted += samples * all[kind] * prices[kind];
  return wanted;
}

/// By weak duality of the fractional problem of dealing each kind of layer of all samples to
/// devices: with any price of each kind, no device earns more in a second than by what it is best
/// paid for. As prices serve the times of each group in turn.
double PipelineCosts::least_seconds(const std::vector<int>& counts, int samples) const {
  double best = 0;
  for (const Group& prices : groups_) {
    if (!prices.priced) continue;
    double earned = 0;
    for (size_t i = 0; i < counts.size(); ++i)
      if (groups_[i].priced && counts[i] > 0)
        earned += counts[i] * best_paid(groups_[i].least_per_sample, prices.least_per_sample);
    if (earned > 0) best = std::max(best, wanted(prices.least_per_sample, samples) / earned);
  }
  return best;
}

double PipelineCosts::least_cost(const std::vector<double>& prices, int samples) const {
  Group::Least cheapest;
  cheapest.fill(std::numeric_limits<double>::infinity());
  double update = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < prices.size(); ++i) {
    const Group& group = groups_[i];
    if (!group.priced) return 0;
    for (size_t kind = 0; kind < kKinds; ++kind)
      cheapest[kind] = std::min(cheapest[kind], prices[i] * group.least_of_any_per_sample[kind]);
    update = std::min({update, prices[i] * whole_update_seconds(*group.profile, false),
                       prices[i] * whole_update_seconds(*group.profile, true)});
  }
  return wanted(cheapest, samples) + update;
}

}  // namespace motley
