#include "worker/profiler/count_device.h"

#include <algorithm>

#include "core/spec/profile_key.h"
#include "worker/engine/work_count.h"
#include "worker/profiler/layer_kinds.h"

namespace motley {
namespace {

class DeviceCounter {
 public:
  DeviceCounter(const JobSpec& job, const WorkDevice& device)
      : job_(job),
        traits_{device.kind, device.precision, device.threads},
        limit_(device.memory_limit),
        most_(largest_profiled_micro_batch(job)) {}

  WorkTable run() const {
    WorkTable table;
    const int64_t elements = parameter_count(job_.model);
    table.update_flops = update_flops(elements);
    table.update_bytes = update_bytes(elements, traits_.precision);
    table.memory = memory();
    add_model(&table);
    const auto fits = [&](const LayerKind& kind) { return layer_memory(kind, 1) <= limit_; };
    for (const LayerKind& kind : kinds_that_fit(job_.model, fits))
      table.layers.push_back(layer(kind));
    return table;
  }

 private:
  EngineOptions model_options() const {
    EngineOptions options;
    options.model = job_.model;
    options.numerics = job_.train.numerics;
    options.optimizer = job_.train.optimizer;
    return options;
  }

  /// Up to the first micro-batch that is too large; more are of no use and take long to count.
  std::vector<MemoryPoint> memory() const {
    std::vector<MemoryPoint> points;
    const auto too_large = [&](const MemoryPoint& point) { return point.total() > limit_; };
    for (int up_to = 1; points.empty() || (!too_large(points.back()) && up_to < most_);) {
      up_to = points.empty() ? 1 : std::min(up_to * 2, most_);
      points = estimate_memory(model_options(), traits_, up_to);
    }
    const auto first = std::find_if(points.begin(), points.end(), too_large);
    if (first != points.end()) points.erase(first + 1, points.end());
    return points;
  }

  void add_model(WorkTable* table) const {
    const double usable = static_cast<double>(limit_.value()) * (1 - kMemoryHeadroom);
    int largest = 0;
    for (const MemoryPoint& point : table->memory)
      if (static_cast<double>(point.total().value()) <= usable) largest = point.micro_batch;
    if (largest == 0) return;
    LayerWork whole;
    for (const int samples : model_micro_batches(largest)) {
      EngineOptions options = model_options();
      options.micro_batches = {samples};
      const CountedWork work = count_work(options, traits_, samples);
      const Bytes bytes = table->memory[static_cast<size_t>(samples - 1)].total();
      whole.points.push_back({samples, bytes, work.forward, work.backward});
    }
    table->layers.push_back(std::move(whole));
  }

  Bytes layer_memory(const LayerKind& kind, int samples) const {
    if (!check_layer_kind(kind, job_.model)) return Bytes(INT64_MAX);
    return estimate_engine(pass_options(job_, kind, {samples}), traits_).total();
  }

  LayerWork layer(const LayerKind& kind) const {
    LayerWork layer{.layer = kind.layer, .share = kind.share, .recompute = kind.recompute};
    for (const int samples : layer_micro_batches(kind, most_)) {
      const Bytes bytes = layer_memory(kind, samples);
      if (bytes > limit_) break;
      const CountedWork work = count_work(pass_options(job_, kind, {samples}), traits_, samples);
      if (layer.points.empty()) layer.sum_bytes_per_sample = work.sum_bytes / samples;
      layer.points.push_back({samples, bytes, work.forward, work.backward});
    }
    return layer;
  }

  const JobSpec& job_;
  DeviceTraits traits_;
  Bytes limit_;
  int most_;  ///< samples
};

}  // namespace

WorkTable count_device(const JobSpec& job, const WorkDevice& device) {
  return DeviceCounter(job, device).run();
}

}  // namespace motley
