// Curves of single layers: what stages of a plan that is cut are predicted from.

#include <algorithm>
#include <memory>
#include <set>

#include "worker/engine/shared_memory.h"
#include "worker/profiler/layer_kinds.h"
#include "worker/profiler/profiler.h"
#include "worker/train/sections.h"
#include "worker/train/stage_group.h"

namespace motley {
namespace {

constexpr int kLargestMicroBatch = 1024;
constexpr size_t kLeastPoints = 3;
/// No pass is taken for less than this part of what was timed with its section's beginning.
constexpr double kLeastPart = 1e-6;
/// Of the smallest section, beginning it takes at most this part.
constexpr double kMostOverhead = 0.95;

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

/// What passes were timed to take, the sections' fixed cost still in them.
struct Timed {
  double forward = 0;
  double backward = 0;
  double spread = 0;
  int repetitions = 0;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

/// Repeats the passes of one layer.
class LayerTimer {
 public:
  static Result<std::unique_ptr<LayerTimer>> create(Device& device, Pacer& pacer,
                                                    EngineOptions options) {
    auto timer = std::unique_ptr<LayerTimer>(new LayerTimer(device, pacer, options.model));
    timer->has_input_ = options.stage->first_layer > 0;
    options.group = &timer->group_;
    MOTLEY_TRY(timer->engine_, Engine::create(device, options));
    MOTLEY_TRY_VOID(timer->passes(options.micro_batches.front(), nullptr, nullptr));  // warms up
    return timer;
  }

  Result<Timed> time(int samples, const ProfilerOptions& options) {
    std::vector<double> forward, backward, both;
    double total = 0;
    while (both.size() < 2 || (total < options.seconds_per_layer_point &&
                               static_cast<int>(both.size()) < options.most_repetitions)) {
      double there = 0, back = 0;
      MOTLEY_TRY_VOID(passes(samples, &there, &back));
      forward.push_back(there);
      backward.push_back(back);
      both.push_back(there + back);
      total += both.back();
    }
    const auto [least, most] = std::minmax_element(both.begin(), both.end());
    const double middle = median(both);
    return Timed{.forward = median(forward),
                 .backward = median(backward),
                 .spread = middle > 0 ? (*most - *least) / middle : 0,
                 .repetitions = static_cast<int>(both.size())};
  }

  /// Both passes in one section.
  Result<double> time_together(int samples) {
    MOTLEY_TRY_VOID(begin(samples));
    const double start = open();
    MOTLEY_TRY_VOID(engine_->forward(0, samples));
    MOTLEY_TRY_VOID(charge(engine_->flops(samples).forward, samples));
    MOTLEY_TRY_VOID(engine_->backward(0, samples));
    MOTLEY_TRY_VOID(charge(engine_->flops(samples).backward, samples));
    return close(start);
  }

  /// Of an update scaled to so many elements. A learning rate of 0 leaves the weights alone.
  Result<double> time_update(int64_t elements) {
    const double start = open();
    MOTLEY_TRY_VOID(engine_->gradient_norm(1, *solo_));
    MOTLEY_TRY_VOID(engine_->update(1, 0.0, 1, 1.0));
    sections_.charge(update_flops(engine_->updated_elements()), 0);
    return close(start) * static_cast<double>(elements) /
           static_cast<double>(engine_->updated_elements());
  }

  const LoneMember& group() const { return group_; }

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
    Elements input(engine_->view(0, Boundary::kInput, samples), engine_->element_bytes());
    const int64_t count = int64_t{samples} * model_.context * model_.width;
    for (int64_t i = 0; i < count; ++i) input.set(i, 0.02F * static_cast<float>(i % 101) - 1);
    return engine_->push(0, Boundary::kInput, samples);
  }

  Result<Unit> passes(int samples, double* forward, double* backward) {
    MOTLEY_TRY_VOID(begin(samples));
    double start = open();
    MOTLEY_TRY_VOID(engine_->forward(0, samples));
    MOTLEY_TRY_VOID(charge(engine_->flops(samples).forward, samples));
    const double there = close(start);
    start = open();
    MOTLEY_TRY_VOID(engine_->backward(0, samples));
    MOTLEY_TRY_VOID(charge(engine_->flops(samples).backward, samples));
    const double back = close(start);
    if (forward != nullptr) *forward = there;
    if (backward != nullptr) *backward = back;
    return Unit{};
  }

  Device& device_;
  Sections sections_;
  LoneMember group_;
  ModelSpec model_;
  bool has_input_ = false;  ///< from the layer before
  std::unique_ptr<Engine> engine_;
  const std::unique_ptr<Communicator> solo_ = solo_communicator();
  std::vector<int32_t> tokens_;
};

/// Shares that let a straight line through two points tell the others: about a quarter of the
/// heads, and the rest.
std::vector<double> shares_to_measure(const ModelSpec& model) {
  if (model.heads < 2) return {};
  const int few = std::max(1, model.heads / 4);
  std::set<double> shares;
  for (const int heads : {few, model.heads - few})
    shares.insert(static_cast<double>(heads) / model.heads);
  return {shares.begin(), shares.end()};
}

std::vector<LayerKind> kinds_to_measure(const ModelSpec& model) {
  std::vector<LayerKind> kinds;
  for (const char* layer : {"embedding", "block", "head"}) kinds.push_back({.layer = layer});
  for (const Recompute part : {Recompute::kAttention, Recompute::kMlp, Recompute::kBlock})
    kinds.push_back({.layer = "block", .recompute = part});
  for (const double share : shares_to_measure(model))
    for (const char* layer : {"embedding", "block", "head"}) {
      const LayerKind kind{.layer = layer, .share = share};
      if (check_layer_kind(kind, model)) kinds.push_back(kind);
    }
  return kinds;
}

/// Powers of `base` up to `largest`, and `largest` itself.
std::vector<int> powers_up_to(int largest, int base) {
  std::vector<int> sizes;
  for (int size = 1; size < largest; size *= base) sizes.push_back(size);
  sizes.push_back(largest);
  return sizes;
}

class LayerProfiler {
 public:
  LayerProfiler(const JobSpec& job, Device& device, Pacer& pacer, const ProfilerOptions& options,
                DeviceProfile* profile)
      : job_(job), device_(device), pacer_(pacer), options_(options), profile_(profile) {}

  /// False where not even one sample of it fits.
  Result<bool> measure(const LayerKind& kind) {
    const bool plain = kind.share == 1 && kind.recompute == Recompute::kNone;
    const int most = std::min(job_.train.global_batch, kLargestMicroBatch);
    EngineOptions engine = layer_engine_options(job_, kind, powers_up_to(most, plain ? 2 : 4));
    std::erase_if(engine.micro_batches, [&](int size) { return !fits(engine, size); });
    if (engine.micro_batches.empty()) return false;
    MOTLEY_TRY(const auto timer, LayerTimer::create(device_, pacer_, engine));
    if (profile_->curve("block") == nullptr && kind.layer == "block") {
      MOTLEY_TRY_VOID(measure_step(kind, *timer, engine.micro_batches.front()));
    }
    LayerCurve curve;
    curve.layer = kind.layer;
    curve.share = kind.share;
    curve.recompute = kind.recompute;
    for (const int size : engine.micro_batches) {
      MOTLEY_TRY(const Timed timed, timer->time(size, options_));
      curve.points.push_back(point_of(size, timed));
      curve.sums = timer->group().sums();
      curve.sum_bytes_per_sample = static_cast<double>(timer->group().bytes()) / size;
      const bool long_enough = timed.forward + timed.backward > options_.longest_layer_repetition;
      if (curve.points.size() >= kLeastPoints && long_enough) break;
    }
    curve.fit = fit_curve(curve.points);
    profile_->curves.push_back(std::move(curve));
    return true;
  }

 private:
  bool fits(EngineOptions engine, int samples) const {
    engine.micro_batches = {samples};
    return estimate_engine(engine, device_.kind(), device_.threads()).total() <=
           profile_->memory_limit;
  }

  /// What the whole model tells where it fits, and the update with state in host memory.
  Result<Unit> measure_step(const LayerKind& kind, LayerTimer& timer, int samples) {
    const int64_t elements = parameter_count(job_.model);
    if (profile_->curve("model") == nullptr) {
      MOTLEY_TRY(const Timed apart, timer.time(samples, options_));
      MOTLEY_TRY(const double together, timer.time_together(samples));
      profile_->step_overhead_seconds =
          std::clamp(apart.forward + apart.backward - together, 0.0, kMostOverhead * apart.forward);
      MOTLEY_TRY(profile_->update_seconds, timer.time_update(elements));
    }
    EngineOptions engine = layer_engine_options(job_, kind, {samples});
    engine.host_optimizer = true;
    MOTLEY_TRY(const auto in_host, LayerTimer::create(device_, pacer_, engine));
    MOTLEY_TRY(profile_->host_update_seconds, in_host->time_update(elements));
    return Unit{};
  }

  CurvePoint point_of(int samples, const Timed& timed) const {
    const auto without_start = [&](double seconds) {
      return std::max(seconds - profile_->step_overhead_seconds, kLeastPart * seconds);
    };
    const double forward = without_start(timed.forward);
    return {.micro_batch = samples,
            .seconds = forward + without_start(timed.backward),
            .spread = timed.spread,
            .repetitions = timed.repetitions,
            .forward_seconds = forward};
  }

  const JobSpec& job_;
  Device& device_;
  Pacer& pacer_;
  const ProfilerOptions& options_;
  DeviceProfile* profile_;
};

}  // namespace

Result<Unit> measure_layers(const JobSpec& job, Device& device, Pacer& pacer,
                            const ProfilerOptions& options, const ProfilerProgress& progress,
                            DeviceProfile* profile) {
  LayerProfiler profiler(job, device, pacer, options, profile);
  // The block first: it tells what a device too small for the model pays for each section.
  std::vector<LayerKind> kinds = kinds_to_measure(job.model);
  std::swap(kinds[0], kinds[1]);
  for (const LayerKind& kind : kinds) {
    progress("layers: " + kind.layer);
    MOTLEY_TRY(const bool fits, profiler.measure(kind));
    // A device is of no use for a plan unless each plain layer fits it by itself.
    if (!fits && kind.share == 1 && kind.recompute == Recompute::kNone) {
      std::erase_if(profile->curves,
                    [](const LayerCurve& curve) { return curve.layer != "model"; });
      return Unit{};
    }
  }
  return Unit{};
}

}  // namespace motley
