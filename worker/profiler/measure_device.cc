#include <algorithm>
#include <memory>

#include "core/spec/profile_key.h"
#include "kernels/host_memory.h"
#include "worker/engine/engine.h"
#include "worker/profiler/curve.h"
#include "worker/profiler/host_link.h"
#include "worker/profiler/layer_kinds.h"
#include "worker/profiler/profiler.h"

namespace motley {
namespace {

/// Repeats one kind of section on one engine and keeps its time.
class SectionTimer {
 public:
  SectionTimer(Device& device, Engine& engine, Pacer& pacer, const ModelSpec& model, int largest)
      : device_(device), engine_(engine), pacer_(pacer), context_(model.context) {
    // Any valid tokens will do: the work does not depend on their values.
    tokens_.resize(static_cast<size_t>(largest) * static_cast<size_t>(context_ + 1));
    for (size_t i = 0; i < tokens_.size(); ++i)
      tokens_[i] = static_cast<int32_t>(i % static_cast<size_t>(model.vocab));
  }

  /// Seconds of a section of `count` micro-batches of `samples`.
  Result<double> micro_batches(int samples, int count) {
    engine_.begin_step();
    const auto length = static_cast<size_t>(samples) * static_cast<size_t>(context_ + 1);
    pacer_.begin_section();
    const double start = pacer_.now();
    for (int i = 0; i < count; ++i) {
      MOTLEY_TRY_VOID(run_micro_batch(engine_, std::span(tokens_).first(length), samples));
      pacer_.charge(engine_.flops(samples).total(), samples);
    }
    MOTLEY_TRY_VOID(engine_.sums());  // the device is through
    return finish(start);
  }

  /// Seconds of a section that only clips and updates. A learning rate of 0 leaves the weights
  /// alone.
  Result<double> update() {
    pacer_.begin_section();
    const double start = pacer_.now();
    MOTLEY_TRY_VOID(engine_.gradient_norm(1, *solo_));
    MOTLEY_TRY_VOID(engine_.update(1, 0.0, 1, 1.0));
    MOTLEY_TRY_VOID(device_.synchronize());
    pacer_.charge(update_flops(engine_.updated_elements()), 0);
    return finish(start);
  }

 private:
  Result<double> finish(double start) {
    pacer_.end_section();
    return pacer_.now() - start;
  }

  Device& device_;
  Engine& engine_;
  Pacer& pacer_;
  const std::unique_ptr<Communicator> solo_ = solo_communicator();
  int context_;
  std::vector<int32_t> tokens_;
};

/// One that has computed a first micro-batch.
Result<std::unique_ptr<Engine>> warm_engine(Device& device, const EngineOptions& options,
                                            int largest, Pacer& pacer) {
  MOTLEY_TRY(auto engine, Engine::create(device, options));
  MOTLEY_TRY_VOID(
      SectionTimer(device, *engine, pacer, options.model, largest).micro_batches(largest, 1));
  return engine;
}

/// For as large micro-batches as the device truly has memory for, at most `*largest`: other
/// programs, or pieces too small to be of use, may have taken what seemed free.
Result<std::unique_ptr<Engine>> largest_engine(Device& device, EngineOptions* options, int* largest,
                                               Pacer& pacer, const ProfilerProgress& progress) {
  while (true) {
    options->micro_batches = model_micro_batches(*largest);
    auto engine = warm_engine(device, *options, *largest, pacer);
    const bool too_large = !engine && engine.error().code == ErrorCode::kOutOfMemory;
    if (!too_large || *largest == 1) return engine;
    progress("out of memory at micro-batch " + std::to_string(*largest));
    *largest /= 2;
  }
}

/// Nothing where a pace stands for the device, or there is too little memory to tell.
Result<std::optional<HostLink>> measure_copies(Device& device, Bytes memory_limit,
                                               const Pacer& pacer,
                                               const ProfilerProgress& progress) {
  if (pacer.paced() || memory_limit < kProfiledCopy * 4) return std::nullopt;
  progress("copies between host and device");
  const auto link = measure_host_link(device, kProfiledCopy, [&] { return pacer.now(); });
  if (link) return *link;
  if (link.error().code == ErrorCode::kOutOfMemory) return std::nullopt;
  return fail(link.error());
}

}  // namespace

Result<DeviceProfile> measure_device(const JobSpec& job, Device& device, Bytes memory_limit,
                                     Pacer& pacer, const ProfilerOptions& options,
                                     const ProfilerProgress& progress) {
  EngineOptions engine_options;
  engine_options.model = job.model;
  engine_options.numerics = job.train.numerics;
  engine_options.optimizer = job.train.optimizer;
  DeviceProfile profile;
  profile.memory_limit = memory_limit;
  if (!pacer.paced()) profile.host_memory = host_memory_size();
  profile.memory =
      estimate_memory(engine_options, traits_of(device), largest_profiled_micro_batch(job));
  int largest = 0;
  const double usable = static_cast<double>(memory_limit.value()) * (1 - kMemoryHeadroom);
  for (const MemoryPoint& point : profile.memory)
    if (static_cast<double>(point.total().value()) <= usable) largest = point.micro_batch;
  if (largest == 0) {
    MOTLEY_TRY(profile.host_link, measure_copies(device, memory_limit, pacer, progress));
    // The planner says which device cannot hold the model, and by how much.
    MOTLEY_TRY_VOID(measure_layers(job, device, pacer, options, progress, &profile));
    return profile;
  }

  engine_options.memory_limit = memory_limit;
  const int hoped_for = largest;
  progress("warm-up");
  MOTLEY_TRY(auto engine, largest_engine(device, &engine_options, &largest, pacer, progress));
  if (largest < hoped_for) profile.memory.resize(static_cast<size_t>(largest));
  SectionTimer timer(device, *engine, pacer, job.model, largest);
  MOTLEY_TRY(const MeasuredCurve measured,
             measure_curve(
                 engine_options.micro_batches,
                 [&](int samples, int count) { return timer.micro_batches(samples, count); },
                 options, progress));
  profile.step_overhead_seconds = measured.step_overhead_seconds;
  profile.curves.push_back(measured.curve);

  progress("update");
  MOTLEY_TRY(const CurvePoint update, repeat(
                                          options, [&] { return timer.update(); }, progress));
  profile.update_seconds = update.seconds;
  engine.reset();  // its memory is for the copies and layers now
  MOTLEY_TRY(profile.host_link, measure_copies(device, memory_limit, pacer, progress));
  MOTLEY_TRY_VOID(measure_layers(job, device, pacer, options, progress, &profile));
  return profile;
}

}  // namespace motley
