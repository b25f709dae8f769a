#include "tests/support/layered_case.h"

#include <cmath>
#include <tuple>

#include "core/pipeline.h"

namespace motley::testing {
namespace {

constexpr int64_t kMiB = 1 << 20;
constexpr int kMostSamples = 32;

const char* kind_of_layer(const ModelSpec& model, LayerIndex layer) {
  if (layer == 0) return "embedding";
  return layer <= model.layers ? "block" : "head";
}

LayerCurve curve_of(const std::string& layer, double fixed, double per_sample) {
  LayerCurve curve;
  curve.layer = layer;
  for (int size = 1; size <= kMostSamples; size *= 2) {
    const double seconds = fixed + per_sample * size;
    curve.points.push_back({size, seconds, 0.01, 5, seconds / 3});
  }
  curve.fit = fit_curve(curve.points);
  return curve;
}

/// What embedding and head share is there once with both.
void hold_tied_once(const ModelSpec& model, int heads, LayerMemory* sum) {
  const LayerMemory embedding = layer_bytes(model, "embedding", 1, Recompute::kNone, heads);
  sum->fixed = sum->fixed - tied_bytes(model, embedding.fixed, heads);
  sum->state = sum->state - tied_bytes(model, embedding.state, heads);
}

/// Of everything on one device.
LayerMemory model_bytes(const ModelSpec& model, int micro_batch) {
  LayerMemory sum;
  for (LayerIndex layer = 0; layer < layer_count(model); ++layer) {
    const LayerMemory one = layer_bytes(model, kind_of_layer(model, layer), micro_batch);
    sum.fixed += one.fixed;
    sum.saved += one.saved;
    sum.transient = std::max(sum.transient, one.transient);
  }
  hold_tied_once(model, model.heads, &sum);
  return sum;
}

/// Of a rank with so many heads of all layers of a stage, with `in_flight` micro-batches begun.
LayerMemory stage_bytes(const ModelSpec& model, const StagePlan& stage, int heads, int micro_batch,
                        int in_flight) {
  LayerMemory sum;
  for (LayerIndex layer = stage.first_layer; layer <= stage.last_layer; ++layer) {
    const Recompute recompute =
        stage.recompute.empty() ? Recompute::kNone
                                : stage.recompute[static_cast<size_t>(layer - stage.first_layer)];
    const LayerMemory one =
        layer_bytes(model, kind_of_layer(model, layer), micro_batch, recompute, heads);
    sum.fixed += one.fixed;
    sum.state += one.state;
    sum.saved += Bytes(one.saved.value() * in_flight);
    sum.transient = std::max(sum.transient, one.transient);
  }
  if (stage.layers() == layer_count(model)) hold_tied_once(model, heads, &sum);
  return sum;
}

Result<std::vector<RankMemory>> count_ranks(const Plan& plan, const ModelSpec& model) {
  std::vector<RankMemory> memory(plan.ranks.size());
  std::vector<int64_t> owned(plan.ranks.size(), 0);  // elements
  for (const Ownership& owner : plan.owners)
    owned[static_cast<size_t>(owner.owner.value())] += owner.slice.elements();
  for (size_t r = 0; r < plan.replicas.size(); ++r) {
    const ReplicaPlan& replica = plan.replicas[r];
    const auto stages = static_cast<int>(replica.stages.size());
    const auto count = static_cast<int>(micro_batches_of(plan, static_cast<int>(r)).size());
    for (int s = 0; s < stages; ++s) {
      const StagePlan& stage = replica.stages[static_cast<size_t>(s)];
      for (size_t member = 0; member < stage.ranks.size(); ++member) {
        const auto rank = static_cast<size_t>(stage.ranks[member].value());
        const auto heads = static_cast<int>(std::lround(stage.shares[member] * model.heads));
        const LayerMemory sum =
            stage_bytes(model, stage, heads, replica.micro_batch, most_in_flight(stages, s, count));
        const Bytes state = plan.shard_optimizer ? Bytes(8 * owned[rank]) : sum.state;
        const bool in_host = plan.ranks[rank].host_optimizer;
        memory[rank].total = Bytes(kMiB) + sum.fixed - sum.state + sum.saved + sum.transient +
                             (in_host ? Bytes(0) : state);
        memory[rank].host = in_host ? state : Bytes(0);
      }
    }
  }
  return memory;
}

/// A quarter of the heads and the rest; sums of what each sample's tokens are.
void add_shared_curves(const LayeredDevice& device, const ModelSpec& model,
                       DeviceProfile* profile) {
  const int few = std::max(1, model.heads / 4);
  for (const int heads : {few, model.heads - few})
    for (const auto& [layer, work, sums] :
         {std::tuple("embedding", 0.1, 1), std::tuple("block", 1.0, 4),
          std::tuple("head", 1.5, 2)}) {
      const double share = static_cast<double>(heads) / model.heads;
      LayerCurve curve = curve_of(layer, device.fixed, work * share * device.per_sample);
      curve.share = share;
      curve.sums = sums;
      curve.sum_bytes_per_sample = 4.0 * sums * model.context * model.width;
      profile->curves.push_back(std::move(curve));
    }
}

}  // namespace

void add_layered(const LayeredDevice& device, PlanningCase* problem) {
  problem->add({.host = device.host,
                .type = device.type,
                .step_overhead = device.overhead,
                .update = device.update});
  DeviceProfile& profile = problem->profile.devices.back();
  const ModelSpec& model = problem->job.model;
  profile.curves = {curve_of("embedding", device.fixed, 0.1 * device.per_sample),
                    curve_of("block", device.fixed, device.per_sample),
                    curve_of("head", device.fixed, 1.5 * device.per_sample)};
  if (device.recomputing) {
    LayerCurve again = profile.curves[1];
    again.recompute = Recompute::kBlock;
    for (CurvePoint& point : again.points) point.seconds += point.forward_seconds;
    again.fit = fit_curve(again.points);
    profile.curves.push_back(std::move(again));
  }
  profile.host_update_seconds = device.host_update;
  if (device.sharing && model.heads > 1) add_shared_curves(device, model, &profile);
  profile.memory.clear();
  profile.memory_limit = Bytes(device.memory_mib * kMiB);
  for (int size = 1; size <= kMostSamples; ++size) {
    const LayerMemory needs = model_bytes(model, size);
    profile.memory.push_back({size, needs.fixed, needs.saved + needs.transient});
  }
  if (profile.memory.front().total() > profile.memory_limit) {
    profile.memory.clear();
    return;
  }
  const double blocks = model.layers + 1.6;
  profile.curves.push_back(
      curve_of("model", device.fixed * layer_count(model), blocks * device.per_sample));
}

LayerMemory layer_bytes(const ModelSpec& model, const std::string& layer, int micro_batch,
                        Recompute recompute, int heads) {
  const int64_t width = model.width, tokens = int64_t{1} * model.context * micro_batch;
  const auto part = [&](int64_t bytes) { return Bytes(bytes * heads / model.heads); };
  if (layer == "block" && recompute == Recompute::kBlock)
    return {.fixed = part(16 * 12 * width * width),
            .saved = Bytes(2 * tokens * width),
            .transient = part((34 + 16) * tokens * width),
            .state = part(8 * 12 * width * width)};
  if (layer == "block")
    return {.fixed = part(16 * 12 * width * width),
            .saved = Bytes(2 * tokens * width) + part(32 * tokens * width),
            .transient = part(16 * tokens * width),
            .state = part(8 * 12 * width * width)};
  return {.fixed = part(16 * model.vocab * width),
          .saved = Bytes(4 * tokens * width),
          .transient = part(layer == "head" ? 4 * tokens * model.vocab : 0),
          .state = part(8 * model.vocab * width)};
}

LayerMemory layer_bytes(const ModelSpec& model, const std::string& layer, int micro_batch,
                        Recompute recompute) {
  return layer_bytes(model, layer, micro_batch, recompute, model.heads);
}

MemoryCounter layer_bytes_counter(const PlanningCase& problem) {
  const ModelSpec& model = problem.job.model;
  const auto layers = [&model](const LayersToCount& asked) -> Result<LayerMemoryTable> {
    LayerMemoryTable table;
    std::vector<int> heads = asked.heads;
    if (heads.empty()) heads = {model.heads};
    for (const char* const layer : {"embedding", "block", "head"})
      for (const int own : heads)
        for (const int size : asked.micro_batches)
          table[{layer, own, size}] = layer_bytes(model, layer, size, asked.recompute, own);
    return table;
  };
  return {[&model](const Plan& plan) { return count_ranks(plan, model); }, layers};
}

}  // namespace motley::testing
