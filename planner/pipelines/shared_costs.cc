// What stages cost that devices share, by the formulas of predict().

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include "core/pipeline.h"
#include "planner/costs/held_elements.h"
#include "planner/pipelines/pipeline_costs.h"
#include "planner/plain/grain_table.h"

namespace motley {
namespace {

/// Of the vocabulary; of a block it is a head, which is hardly more.
double least_part(const ModelSpec& model) {
  return static_cast<double>(model.vocab / model.heads) / model.vocab;
}

}  // namespace

/// Of each kind of layer, or of none.
void PipelineCosts::measure_shares(const PlanRequest& request, int most_samples, Group* group) {
  if (!may_share_stages(request.job)) return;
  const LayerIndex example[kKinds] = {0, 1, layers_ - 1};
  std::vector<SharedLayer> shared[kKinds];
  for (size_t kind = 0; kind < kKinds; ++kind) {
    const Recompute again = kind == 1 && !group->again.empty() ? recompute_ : Recompute::kNone;
    for (int samples = 1; samples <= most_samples; ++samples) {
      const auto layer = shared_layer(*group->profile, *model_, example[kind], again, samples);
      if (!layer) return;
      shared[kind].push_back(*layer);
    }
    StagePlan stage;
    stage.first_layer = stage.last_layer = example[kind];
    stage.ranks = {Rank(0), Rank(1)};
    group->sums[kind] = group_sums(*group->profile, *model_, stage, 1);
  }
  std::move(std::begin(shared), std::end(shared), std::begin(group->shared));
  be_no_slower_than_shares(group);
}

void PipelineCosts::find_ways_within(const PlanRequest& request, Group* group) {
  std::map<std::string, Way> ways;
  for (const auto& [host, devices] : group->hosts) ways[host];
  for (const LinkProfile& link : request.profile.links)
    if (const auto way = ways.find(link.between[0]);
        way != ways.end() && link.between[0] == link.between[1])
      way->second.be_no_quicker_than(link.latency_seconds, link.bytes_per_second);
  group->within_quickest = ways.begin()->second;
  for (const auto& [host, way] : ways) {
    group->within.be_no_quicker_than(way.latency_seconds, way.bytes_per_second);
    Way& quickest = group->within_quickest;
    quickest.latency_seconds = std::min(quickest.latency_seconds, way.latency_seconds);
    quickest.bytes_per_second = std::max(quickest.bytes_per_second, way.bytes_per_second);
  }
}

/// On a straight line, seconds by the part are least at one of its ends.
void PipelineCosts::be_no_slower_than_shares(Group* group) const {
  const double few = least_part(*model_);
  for (size_t kind = 0; kind < kKinds; ++kind)
    for (size_t i = 0; i < group->shared[kind].size(); ++i)
      for (const double part : {few, 1 - few}) {
        const PassSeconds own = group->shared[kind][i].at(part);
        double& least = group->least_of_any_per_sample[kind];
        least = std::min(least, (own.forward + own.backward) / part / static_cast<double>(i + 1));
      }
}

Result<Unit> PipelineCosts::add_tensor_sets(const std::vector<TensorSet>& sets,
                                            const std::vector<int>& micro_batches,
                                            const CountLayers& count) {
  for (size_t group = 0; group < groups_.size(); ++group) {
    std::vector<int> heads;
    for (const TensorSet& set : sets)
      for (const TensorSet::Member& member : set.members)
        if (index(member.group) == group) heads.push_back(member.heads);
    std::sort(heads.begin(), heads.end());
    heads.erase(std::unique(heads.begin(), heads.end()), heads.end());
    if (!heads.empty())
      MOTLEY_TRY_VOID(count_heads(count, micro_batches, std::move(heads), &groups_[group]));
  }
  for (const TensorSet& set : sets) {
    tensor_sets_.push_back(set);
    Sharing& sharing = sharing_.emplace_back();
    for (int member = 0; member < set.size(); ++member) {
      const Way& way = groups_[index(set.members[index(member)].group)].within;
      sharing.way.be_no_quicker_than(way.latency_seconds, way.bytes_per_second);
      sharing.parts.push_back(part_of(set, member));
    }
  }
  return Unit{};
}

PipelineCosts::Part PipelineCosts::part_of(const TensorSet& set, int member) const {
  const std::vector<double> shares = set.shares(model_->heads);
  const LayerParts parts = parts_of(*model_, shares, member);
  const HeldByKind held = held_by_kind(*model_, shares, member);
  return {.of = {parts.vocabulary, parts.block(), parts.vocabulary},
          .held = {held.embedding, held.block, held.head},
          .tied = held.tied};
}

TensorSet::Member PipelineCosts::member(int group, int number) const {
  if (group < groups()) return {group, 0};
  return tensor_sets_[index(group - groups())].members[index(number)];
}

double PipelineCosts::part_seconds(int group, const std::array<int, kKinds>& layers, double part,
                                   int samples) const {
  double sum = 0;
  for (size_t kind = 0; kind < kKinds; ++kind) {
    const PassSeconds one = groups_[index(group)].shared[kind][index(samples) - 1].at(part);
    sum += layers[kind] * (one.forward + one.backward);
  }
  return sum;
}

/// Members wait for each other in every layer.
PassSeconds PipelineCosts::shared_pass(const PipelineStage& stage, int samples,
                                       const SharedSections& sections) const {
  const TensorSet& set = *tensor_set(stage.group);
  const Sharing& sharing = sharing_[index(stage.group - groups())];
  const LayerCounts counts = counts_of(stage);
  PassSeconds slowest;
  for (size_t i = 0; i < set.members.size(); ++i) {
    const Group& group = groups_[index(set.members[i].group)];
    const double begins = group.profile->step_overhead_seconds;
    PassSeconds own{sections.begins_forward ? begins : 0, sections.begins_backward ? begins : 0};
    for (size_t kind = 0; kind < kKinds; ++kind) {
      if (counts[kind] == 0) continue;
      const PassSeconds one = group.shared[kind][index(samples) - 1].at(sharing.parts[i].of[kind]);
      own.forward += counts[kind] * one.forward;
      own.backward += counts[kind] * one.backward;
    }
    if (sections.again > 0)
      own.backward +=
          sections.again * group.shared[1][index(samples) - 1].again_at(sharing.parts[i].of[1]);
    slowest.forward = std::max(slowest.forward, own.forward);
    slowest.backward = std::max(slowest.backward, own.backward);
  }
  const double half_of_sums =
      sum_seconds(set.members.front().group, set.size(), sharing.way, counts, samples) / 2;
  return {slowest.forward + half_of_sums, slowest.backward + half_of_sums};
}

/// Rings over the host's link.
double PipelineCosts::sum_seconds(int first, int ranks, const Way& way, const LayerCounts& layers,
                                  int samples) const {
  double sums = 0, bytes = 0;
  for (size_t kind = 0; kind < kKinds; ++kind) {
    sums += layers[kind] * groups_[index(first)].sums[kind].count;
    bytes += layers[kind] * groups_[index(first)].sums[kind].bytes * samples;
  }
  return 2.0 * (ranks - 1) * (sums * way.latency_seconds + bytes / ranks / way.bytes_per_second);
}

double PipelineCosts::shared_held(const PipelineStage& stage, int member) const {
  const LayerCounts counts = counts_of(stage);
  const Part& part = sharing_[index(stage.group - groups())].parts[index(member)];
  int64_t held = counts[0] + counts[2] > 0 ? part.tied : 0;
  for (size_t kind = 0; kind < kKinds; ++kind) held += counts[kind] * part.held[kind];
  return static_cast<double>(held) / static_cast<double>(elements_);
}

AlikePasses PipelineCosts::shared_passes(const PipelineStage& stage, int number, int stages,
                                         int micro_batch, int samples) const {
  const int count = (samples + micro_batch - 1) / micro_batch;
  const int begun = most_in_flight(stages, 0, count);
  const int size = std::min(micro_batch, samples), last = samples - (count - 1) * micro_batch;
  const bool before = number > 0, after = number + 1 < stages;
  const int again = blocks_again(stage, number, stages, micro_batch, samples);
  const PassSeconds first = shared_pass(stage, size, {true, after, again});
  const PassSeconds full = shared_pass(stage, size, {before, after, again});
  const PassSeconds rest = shared_pass(stage, last, {count <= begun || before, after, again});
  return {.first_forward = nanos_of_seconds(first.forward),
          .forward = nanos_of_seconds(full.forward),
          .last_forward = nanos_of_seconds(rest.forward),
          .backward = nanos_of_seconds(full.backward),
          .last_backward = nanos_of_seconds(rest.backward),
          .ready = nanos_of_seconds(
              update_seconds(stage, micro_batch, most_in_flight(stages, number, count), again))};
}

/// Over the quickest link within any host.
double PipelineCosts::least_sum_seconds(const std::vector<int>& sharing, size_t kind,
                                        int samples) const {
  const auto first =
      std::find_if(sharing.begin(), sharing.end(), [](int count) { return count > 0; });
  const auto group = static_cast<int>(first - sharing.begin());
  LayerCounts one{};
  one[kind] = 1;
  return sum_seconds(group, std::accumulate(first, sharing.end(), 0),
                     groups_[index(group)].within_quickest, one, samples);
}

/// A layer of which each has the part that it is best at, in proportion, and their sums. Of all
/// kinds a member has the same part, but that vocabularies are cut at whole rows.
PassSeconds PipelineCosts::least_shared(const std::vector<int>& sharing, size_t kind,
                                        size_t samples) const {
  const double few = least_part(*model_);
  double forwards = 0, backwards = 0;  // in a second
  for (size_t group = 0; group < sharing.size(); ++group) {
    if (sharing[group] == 0) continue;
    PassSeconds least{kNever, kNever};
    for (const double part : {few, 1 - few}) {
      const PassSeconds own = groups_[group].shared[kind][samples].at(part);
      least.forward = std::min(least.forward, own.forward / part);
      least.backward = std::min(least.backward, own.backward / part);
    }
    forwards += sharing[group] / least.forward;
    backwards += sharing[group] / least.backward;
  }
  const double half_of_sums = least_sum_seconds(sharing, kind, static_cast<int>(samples) + 1) / 2;
  const double rows = kind == 1 ? 1 : 1 - 1.0 * model_->heads / model_->vocab;
  return {rows / forwards + half_of_sums, rows / backwards + half_of_sums};
}

/// Of a block, each the part that it is best at.
double PipelineCosts::least_again(const std::vector<int>& sharing, size_t samples) const {
  double blocks = 0;  // in a second
  for (size_t group = 0; group < sharing.size(); ++group)
    if (sharing[group] > 0)
      blocks += sharing[group] / groups_[group].shared[1][samples].again_at(1);
  return 1 / blocks;
}

void PipelineCosts::share_for_free(const std::vector<std::vector<int>>& sharing) {
  double begins = kNever;
  for (const Group& group : groups_)
    if (group.priced) begins = std::min(begins, group.profile->step_overhead_seconds);
  free_begins_ = begins;
  std::vector<Group> quicker = groups_;
  for (const std::vector<int>& set : sharing)
    for (size_t kind = 0; kind < kKinds; ++kind)
      for (size_t group = 0; group < set.size(); ++group) {
        if (set[group] == 0) continue;
        Group& own = quicker[group];
        for (size_t samples = 0; samples < own.passes[kind].size(); ++samples) {
          const PassSeconds shared = least_shared(set, kind, samples);
          for (PassSeconds* pass : {&own.passes[kind][samples], &own.rests[kind][samples]})
            *pass = {std::min(pass->forward, shared.forward),
                     std::min(pass->backward, shared.backward)};
          const double per_sample =
              (shared.forward + shared.backward) / static_cast<double>(samples + 1);
          for (Group::Least* least : {&own.least_per_sample, &own.least_of_any_per_sample})
            (*least)[kind] = std::min((*least)[kind], per_sample);
        }
      }
  groups_ = std::move(quicker);
}

namespace {

void be_no_more_than(const std::vector<LayerMemory>& other, std::vector<LayerMemory>* least) {
  for (size_t i = 0; i < other.size(); ++i) {
    LayerMemory& own = (*least)[i];
    own.fixed = std::min(own.fixed, other[i].fixed);
    own.saved = std::min(own.saved, other[i].saved);
    own.transient = std::min(own.transient, other[i].transient);
  }
}

}  // namespace

/// All of a layer in parts: no less is updated, nor needed of memory.
PipelineCosts::Group PipelineCosts::shared_at_best(const std::vector<int>& sharing) const {
  Group shared;
  shared.shared_by = sharing;
  shared.begins_seconds = kNever;
  int64_t usable = 0;
  size_t most_samples = 0;
  double updated = 0;  // in a second
  bool all_again = true;
  for (size_t group = 0; group < sharing.size(); ++group) {
    if (sharing[group] == 0) continue;
    const Group& own = groups_[group];
    if (shared.profile == nullptr) {
      shared.profile = own.profile;
      most_samples = own.passes[0].size();
      shared.precision = own.precision;
      std::copy(std::begin(own.memory), std::end(own.memory), std::begin(shared.memory));
      shared.memory_again = own.memory_again;
    }
    shared.begins_seconds = std::min(shared.begins_seconds, own.begins_seconds);
    usable += sharing[group] * own.usable.value();
    updated += sharing[group] / own.update_seconds;
    for (size_t kind = 0; kind < kKinds; ++kind)
      be_no_more_than(own.memory[kind], &shared.memory[kind]);
    if (!shared.memory_again.empty()) be_no_more_than(own.memory_again, &shared.memory_again);
    all_again = all_again && !own.again.empty();
  }
  shared.usable = Bytes(usable);
  shared.update_seconds = 1 / updated;
  for (size_t kind = 0; kind < kKinds; ++kind) {
    for (size_t samples = 0; samples < most_samples; ++samples)
      shared.passes[kind].push_back(least_shared(sharing, kind, samples));
    shared.rests[kind] = shared.passes[kind];
  }
  for (size_t samples = 0; all_again && samples < most_samples; ++samples)
    shared.again.push_back(least_again(sharing, samples));
  shared.priced = true;
  return shared;
}

/// From and to those that share the quickest of their ways.
void PipelineCosts::add_ways(const std::vector<std::vector<int>>& sharing,
                             std::vector<Way>* ways) const {
  const size_t devices = groups_.size(), all = devices + sharing.size();
  std::vector<std::vector<size_t>> members(all);
  for (size_t group = 0; group < all; ++group)
    for (size_t device = 0; device < devices; ++device)
      if (group < devices ? group == device : sharing[group - devices][device] > 0)
        members[group].push_back(device);
  std::vector<Way> more;
  for (const auto& from : members)
    for (const auto& to : members) {
      Way& best = more.emplace_back((*ways)[from.front() * devices + to.front()]);
      for (const size_t sender : from)
        for (const size_t receiver : to) {
          const Way& way = (*ways)[sender * devices + receiver];
          best.be_no_slower_than(way.latency_seconds, way.bytes_per_second);
        }
    }
  *ways = std::move(more);
}

void PipelineCosts::add_shared_at_best(const std::vector<std::vector<int>>& sharing) {
  add_ways(sharing, &ways_);
  add_ways(sharing, &quickest_ways_);
  std::vector<Group> shared;
  for (const std::vector<int>& set : sharing) shared.push_back(shared_at_best(set));
  for (Group& group : groups_) group.least_per_sample = group.least_of_any_per_sample;
  std::move(shared.begin(), shared.end(), std::back_inserter(groups_));
}

/// While they sum, they earn nothing: with E earned in a second, of which sums of layers worth p
/// take at least q·p, S earned at best in what is left, E ≤ S·(1 - q·E).
double PipelineCosts::earned_sharing(const std::vector<int>& sharing, const Group& prices) const {
  double earned = 0;
  int most = 0;  // samples
  for (size_t group = 0; group < sharing.size(); ++group) {
    if (sharing[group] == 0) continue;
    most = static_cast<int>(groups_[group].shared[0].size());
    earned += sharing[group] *
              best_paid(groups_[group].least_of_any_per_sample, prices.least_of_any_per_sample);
  }
  if (most == 0) return 0;
  double least = std::numeric_limits<double>::infinity();
  for (size_t kind = 0; kind < kKinds; ++kind) {
    const double seconds = least_sum_seconds(sharing, kind, most) / most;
    if (prices.least_of_any_per_sample[kind] > 0)
      least = std::min(least, seconds / prices.least_of_any_per_sample[kind]);
  }
  return earned < std::numeric_limits<double>::infinity() ? earned / (1 + earned * least) : earned;
}

double PipelineCosts::earned_beside(const std::vector<int>& sharing, const std::vector<int>& counts,
                                    const Group& prices, int most_devices) const {
  std::vector<std::pair<double, int>> paid;
  for (size_t i = 0; i < groups_.size(); ++i)
    if (groups_[i].priced && counts[i] > sharing[i])
      paid.emplace_back(
          best_paid(groups_[i].least_of_any_per_sample, prices.least_of_any_per_sample),
          counts[i] - sharing[i]);
  std::sort(paid.begin(), paid.end(), std::greater<>());
  int room = most_devices - std::accumulate(sharing.begin(), sharing.end(), 0);
  double earned = 0;
  for (const auto& [each, count] : paid) {
    const int taken = std::clamp(room, 0, count);
    earned += taken * each;
    room -= taken;
  }
  return earned;
}

double PipelineCosts::samples_through_blocks(const std::vector<int>& counts) const {
  double samples = 0;
  for (size_t i = 0; i < groups_.size(); ++i)
    if (groups_[i].priced && counts[i] > 0)
      samples += counts[i] / groups_[i].least_of_any_per_sample[1];
  return samples / model_->layers;
}

double PipelineCosts::ends_in_blocks() const {
  double ends = 0;
  for (const size_t kind : {0, 2}) {
    double least = std::numeric_limits<double>::infinity();
    for (const Group& group : groups_)
      if (group.priced)
        least = std::min(least, group.least_of_any_per_sample[kind] /
                                    (model_->layers * group.least_of_any_per_sample[1]));
    if (std::isfinite(least)) ends += least;
  }
  return ends;
}

double PipelineCosts::least_seconds_sharing(const std::vector<int>& sharing,
                                            const std::vector<int>& counts, int samples,
                                            int most_devices) const {
  double best = 0;
  for (const Group& prices : groups_) {
    if (!prices.priced) continue;
    const double earned =
        earned_sharing(sharing, prices) + earned_beside(sharing, counts, prices, most_devices);
    if (earned > 0) best = std::max(best, wanted(prices.least_of_any_per_sample, samples) / earned);
  }
  return best;
}

}  // namespace motley
