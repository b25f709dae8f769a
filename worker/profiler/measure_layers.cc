// Curves of single layers: what stages of a plan that is cut are predicted from.

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <span>

#include "core/spec/profile_key.h"
#include "worker/engine/shared_memory.h"
#include "worker/profiler/curve.h"
#include "worker/profiler/layer_kinds.h"
#include "worker/profiler/profiler.h"
#include "worker/train/sections.h"
#include "worker/train/stage_group.h"

namespace motley {
namespace {

/// No pass is taken for less than this part of what was timed with its section's beginning.
constexpr double kLeastPart = 1e-6;

/// The ranks that share a layer, of which only one is here: sums cut its sections as they will in
/// training, but cost nothing.
class LoneMember final : public TensorGroup {
 public:
  explicit LoneMember(Sections& sections) : group_(solo_communicator(), sections) {}

  void begin(int samples) {
    group_.set_samples(samples);
    sums_ = 0;
    bytes_ = 0;
  }
  double take_charged() { return group_.take_charged(); }
  int sums() const { return sums_; }  ///< since begin()
  int64_t bytes() const { return bytes_; }

  Result<Unit> sum(std::span<float> data, double flops) override { return count(data, flops); }
  Result<Unit> sum(std::span<double> data, double flops) override { return count(data, flops); }

 private:
  template <class T>
  Result<Unit> count(std::span<T> data, double flops) {
    ++sums_;
    bytes_ += static_cast<int64_t>(data.size_bytes());
    return group_.sum(data, flops);
  }

  StageGroup group_;
  int sums_ = 0;
  int64_t bytes_ = 0;
};

/// Repeats the passes of one layer.
class LayerTimer {
 public:
  static Result<std::unique_ptr<LayerTimer>> create(Device& device, Pacer& pacer,
                                                    EngineOptions options) {
    auto timer = std::unique_ptr<LayerTimer>(new LayerTimer(device, pacer, options.model));
    timer->has_input_ = options.stage->first_layer > 0;
    options.group = &timer->group_;
    MOTLEY_TRY(timer->engine_, Engine::create(device, options));
    MOTLEY_TRY_VOID(timer->section(options.micro_batches.front(), 1));  // warms up
    timer->sums_ = timer->group_.sums();
    timer->sum_bytes_ = timer->group_.bytes();
    return timer;
  }

  /// A section of `count` micro-batches, forward and backward.
  Result<double> section(int samples, int count) {
    MOTLEY_TRY_VOID(begin(samples));
    const double start = open();
    for (int i = 0; i < count; ++i) {
      MOTLEY_TRY_VOID(forward(samples));
      MOTLEY_TRY_VOID(backward(samples));
    }
    return close(start);
  }

  /// A section of a forward pass alone.
  Result<double> forward_section(int samples) {
    MOTLEY_TRY_VOID(begin(samples));
    const double start = open();
    MOTLEY_TRY_VOID(forward(samples));
    return close(start);
  }

  /// Of an update scaled to so many elements. A learning rate of 0 leaves the weights alone.
  Result<double> time_update(int64_t elements) {
    const double start = open();
    MOTLEY_TRY_VOID(engine_->gradient_norm(1, *solo_));
    MOTLEY_TRY_VOID(engine_->update(1, 0.0, 1, 1.0));
    MOTLEY_TRY_VOID(device_.synchronize());
    sections_.charge(update_flops(engine_->updated_elements()), 0);
    return close(start) * static_cast<double>(elements) /
           static_cast<double>(engine_->updated_elements());
  }

  /// Over the ranks that share the layer, in one micro-batch of the smallest size.
  int sums() const { return sums_; }
  int64_t sum_bytes() const { return sum_bytes_; }

 private:
  LayerTimer(Device& device, Pacer& pacer, const ModelSpec& model)
      : device_(device), sections_(pacer), group_(sections_), model_(model) {}

  double open() {
    sections_.open();
    return sections_.pacer().now();
  }
  double close(double start) {
    sections_.close();
    return sections_.pacer().now() - start;
  }
  Result<Unit> charge(double flops, int samples) {
    MOTLEY_TRY_VOID(device_.synchronize());
    sections_.charge(flops - group_.take_charged(), samples);
    return Unit{};
  }
  Result<Unit> forward(int samples) {
    MOTLEY_TRY_VOID(engine_->forward(0, samples));
    return charge(engine_->flops(samples).forward, samples);
  }
  Result<Unit> backward(int samples) {
    MOTLEY_TRY_VOID(engine_->backward(0, samples));
    return charge(engine_->flops(samples).backward, samples);
  }

  Result<Unit> begin(int samples) {
    // Any valid tokens will do: the work does not depend on their values.
    tokens_.assign(static_cast<size_t>(samples) * static_cast<size_t>(model_.context + 1), 0);
    engine_->begin_step();
    group_.begin(samples);
    MOTLEY_TRY_VOID(engine_->put_samples(0, {.tokens = tokens_, .samples = samples}));
    return has_input_ ? put_input(samples) : Result<Unit>(Unit{});
  }

  /// Numbers of the size of activations: what happens to lie there could be slower to compute with.
  Result<Unit> put_input(int samples) {
    constexpr int64_t kPeriod = 101;
    const std::span<std::byte> bytes = engine_->view(0, Boundary::kInput, samples);
    Elements input(bytes, engine_->precision());
    const int64_t count = int64_t{samples} * model_.context * model_.width;
    for (int64_t i = 0; i < std::min(count, kPeriod); ++i)
      input.set(i, 0.02F * static_cast<float>(i) - 1);
    // A GPU is done before so many would be set one by one.
    const size_t period = bytes.size() / static_cast<size_t>(count) * kPeriod;
    for (size_t known = period; known < bytes.size(); known *= 2)
      std::memcpy(bytes.data() + known, bytes.data(), std::min(known, bytes.size() - known));
    return engine_->push(0, Boundary::kInput, samples);
  }

  Device& device_;
  Sections sections_;
  LoneMember group_;
  ModelSpec model_;
  bool has_input_ = false;  ///< from the layer before
  std::unique_ptr<Engine> engine_;
  int sums_ = 0;
  int64_t sum_bytes_ = 0;
  const std::unique_ptr<Communicator> solo_ = solo_communicator();
  std::vector<int32_t> tokens_;
};

class LayerProfiler {
 public:
  LayerProfiler(const JobSpec& job, Device& device, Pacer& pacer, const ProfilerOptions& options,
                DeviceProfile* profile)
      : job_(job), device_(device), pacer_(pacer), options_(options), profile_(profile) {
    const bool alone = profile->curve("model") == nullptr;
    options_.seconds_per_point =
        alone ? options.seconds_per_lone_layer_point : options.seconds_per_layer_point;
    if (options.least_repetition_seconds > 0)
      options_.least_repetition_seconds = options.share_of_point(options_.seconds_per_point);
    options_.longest_repetition = options.longest_layer_repetition;
  }

  std::vector<LayerKind> kinds() const {
    return kinds_that_fit(job_.model, [&](const LayerKind& kind) { return layer_fits(kind); });
  }

  Result<Unit> measure(const LayerKind& kind, const ProfilerProgress& progress) {
    EngineOptions engine =
        pass_options(job_, kind, layer_micro_batches(kind, largest_profiled_micro_batch(job_)));
    std::erase_if(engine.micro_batches, [&](int size) { return !layer_fits(kind, size); });
    MOTLEY_TRY(const auto timer, LayerTimer::create(device_, pacer_, engine));
    MOTLEY_TRY(MeasuredCurve measured,
               measure_curve(
                   engine.micro_batches,
                   [&](int samples, int count) { return timer->section(samples, count); }, options_,
                   progress));
    if (profile_->curves.empty()) profile_->step_overhead_seconds = measured.step_overhead_seconds;
    LayerCurve& curve = measured.curve;
    curve.layer = kind.layer;
    curve.share = kind.share;
    curve.recompute = kind.recompute;
    for (CurvePoint& point : curve.points) {
      point.seconds += measured.step_overhead_seconds;
      MOTLEY_TRY_VOID(tell_forward(*timer, progress, &point));
      quickest_ = std::min({quickest_, point.seconds, point.forward_seconds});
    }
    curve.sums = timer->sums();
    curve.sum_bytes_per_sample =
        static_cast<double>(timer->sum_bytes()) / engine.micro_batches.front();
    profile_->curves.push_back(std::move(curve));
    return Unit{};
  }

  /// Once all are measured: until then curves hold sections with what beginning them takes.
  void take_off_starts() {
    double quickest_of_model = std::numeric_limits<double>::infinity();
    const double before = profile_->step_overhead_seconds;
    for (const LayerCurve& curve : profile_->curves)
      for (const CurvePoint& point : curve.points)
        if (curve.layer == "model")
          quickest_of_model = std::min(quickest_of_model, point.seconds + before);
    profile_->step_overhead_seconds = start_seconds(before, quickest_, quickest_of_model);
    for (LayerCurve& curve : profile_->curves) {
      for (CurvePoint& point : curve.points) {
        if (curve.layer == "model") {
          point.seconds += before - profile_->step_overhead_seconds;
          continue;
        }
        point.seconds = without_start(point.seconds);
        point.forward_seconds = std::min(without_start(point.forward_seconds), point.seconds);
      }
      curve.fit = fit_curve(curve.points);
    }
  }

  /// Of all the model's elements, from the first of `kinds` that fits together with its state; with
  /// the state on the device only where the whole model has not told it.
  Result<Unit> measure_updates(const std::vector<LayerKind>& kinds,
                               const ProfilerProgress& progress) {
    progress("updates");
    MOTLEY_TRY(profile_->host_update_seconds, update_seconds(kinds, true, progress));
    if (profile_->curve("model") != nullptr) return Unit{};
    MOTLEY_TRY(profile_->update_seconds, update_seconds(kinds, false, progress));
    // No state fits beside any layer: then it lies in host memory.
    if (profile_->update_seconds == 0) profile_->update_seconds = profile_->host_update_seconds;
    return Unit{};
  }

 private:
  bool fits(const EngineOptions& engine) const {
    return estimate_engine(engine, traits_of(device_)).total() <= profile_->memory_limit;
  }
  bool layer_fits(const LayerKind& kind, int samples = 1) const {
    return check_layer_kind(kind, job_.model) && fits(pass_options(job_, kind, {samples}));
  }

  /// 0 where none fits.
  Result<double> update_seconds(const std::vector<LayerKind>& kinds, bool in_host,
                                const ProfilerProgress& progress) {
    for (const LayerKind& kind : kinds) {
      EngineOptions engine = layer_engine_options(job_, kind, {1});
      engine.host_optimizer = in_host;
      if (!fits(engine)) continue;
      MOTLEY_TRY(const auto timer, LayerTimer::create(device_, pacer_, engine));
      const int64_t elements = parameter_count(job_.model);
      MOTLEY_TRY(const CurvePoint update,
                 repeat(
                     options_, [&] { return timer->time_update(elements); }, progress));
      return update.seconds;
    }
    return 0.0;
  }

  Result<Unit> tell_forward(LayerTimer& timer, const ProfilerProgress& progress,
                            CurvePoint* point) {
    MOTLEY_TRY(const CurvePoint forward,
               repeat(
                   options_, [&] { return timer.forward_section(point->micro_batch); }, progress));
    point->forward_seconds = forward.seconds;
    return Unit{};
  }

  /// A section less what beginning one costs on this device.
  double without_start(double seconds) const {
    return std::max(seconds - profile_->step_overhead_seconds, kLeastPart * seconds);
  }

  const JobSpec& job_;
  Device& device_;
  Pacer& pacer_;
  ProfilerOptions options_;
  DeviceProfile* profile_;
  double quickest_ = std::numeric_limits<double>::infinity();  ///< seconds of any section
};

}  // namespace

Result<Unit> measure_layers(const JobSpec& job, Device& device, Pacer& pacer,
                            const ProfilerOptions& options, const ProfilerProgress& progress,
                            DeviceProfile* profile) {
  LayerProfiler profiler(job, device, pacer, options, profile);
  const std::vector<LayerKind> kinds = profiler.kinds();
  for (const LayerKind& kind : kinds)
    MOTLEY_TRY_VOID(profiler.measure(kind, [&](const std::string& what) {
      progress(what.empty() ? what : kind.layer + ", " + what);
    }));
  profiler.take_off_starts();
  return profiler.measure_updates(kinds, progress);
}

}  // namespace motley
