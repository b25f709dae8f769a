#include <algorithm>
#include <memory>
#include <set>

#include "worker/engine/engine.h"
#include "worker/profiler/profiler.h"

namespace motley {
namespace {

/// More than this many entries would make the table of counted memory slow to make and of no use.
constexpr int kLargestMicroBatch = 1024;

/// 1, 2, 3, 4, 6, 8, 12, 16, … up to `largest`, and `largest` itself: dense where curves bend.
std::vector<int> candidate_micro_batches(int largest) {
  std::set<int> sizes = {1, 2, 3, largest};
  for (int power = 4; power <= largest; power *= 2) {
    sizes.insert(power);
    sizes.insert(power + power / 2);
  }
  sizes.erase(sizes.upper_bound(largest), sizes.end());
  return {sizes.begin(), sizes.end()};
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

/// Repeats one kind of section on one engine and keeps its time.
class SectionTimer {
 public:
  SectionTimer(Engine& engine, Pacer& pacer, const ModelSpec& model, int largest)
      : engine_(engine), pacer_(pacer), context_(model.context) {
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
    return finish(start);
  }

  /// Seconds of a section that only clips and updates. A learning rate of 0 leaves the weights
  /// alone.
  Result<double> update() {
    pacer_.begin_section();
    const double start = pacer_.now();
    MOTLEY_TRY_VOID(engine_.gradient_norm(1, *solo_));
    MOTLEY_TRY_VOID(engine_.update(1, 0.0, 1, 1.0));
    pacer_.charge(update_flops(engine_.updated_elements()), 0);
    return finish(start);
  }

 private:
  Result<double> finish(double start) {
    pacer_.end_section();
    return pacer_.now() - start;
  }

  Engine& engine_;
  Pacer& pacer_;
  const std::unique_ptr<Communicator> solo_ = solo_communicator();
  int context_;
  std::vector<int32_t> tokens_;
};

template <class Measure>
Result<CurvePoint> repeat(const ProfilerOptions& options, Measure measure) {
  std::vector<double> seconds;
  double total = 0;
  while (static_cast<int>(seconds.size()) < options.most_repetitions &&
         (seconds.size() < 2 || total < options.seconds_per_point)) {
    MOTLEY_TRY(const double once, measure());
    seconds.push_back(once);
    total += once;
  }
  const auto [least, most] = std::minmax_element(seconds.begin(), seconds.end());
  CurvePoint point;
  point.seconds = median(seconds);
  point.spread = point.seconds > 0 ? (*most - *least) / point.seconds : 0;
  point.repetitions = static_cast<int>(seconds.size());
  return point;
}

/// The points of the curve: sections of one micro-batch, the step's fixed cost still in them.
Result<std::vector<CurvePoint>> measure_points(SectionTimer& timer, const std::vector<int>& sizes,
                                               const ProfilerOptions& options,
                                               const ProfilerProgress& progress) {
  std::vector<CurvePoint> points;
  for (const int size : sizes) {
    progress("micro-batch " + std::to_string(size));
    MOTLEY_TRY(CurvePoint point, repeat(options, [&] { return timer.micro_batches(size, 1); }));
    point.micro_batch = size;
    points.push_back(point);
    if (points.size() >= 3 && point.seconds > options.longest_repetition) break;
  }
  return points;
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
  profile.memory = estimate_memory(engine_options, device.kind(), device.threads(),
                                   std::min(job.train.global_batch, kLargestMicroBatch));
  int largest = 0;
  for (const MemoryPoint& point : profile.memory)
    if (point.total() <= memory_limit) largest = point.micro_batch;
  if (largest == 0) {
    // The planner says which device cannot hold the model, and by how much.
    MOTLEY_TRY_VOID(measure_layers(job, device, pacer, options, progress, &profile));
    return profile;
  }

  engine_options.micro_batches = candidate_micro_batches(largest);
  engine_options.memory_limit = memory_limit;
  MOTLEY_TRY(auto engine, Engine::create(device, engine_options));
  SectionTimer timer(*engine, pacer, job.model, largest);
  progress("warm-up");
  MOTLEY_TRY_VOID(timer.micro_batches(1, 1));

  LayerCurve curve;
  MOTLEY_TRY(curve.points, measure_points(timer, engine_options.micro_batches, options, progress));
  // One micro-batch costs fixed + t, two cost fixed + 2 t: the smallest size shows the fixed part
  // best.
  const CurvePoint& first = curve.points.front();
  MOTLEY_TRY(const CurvePoint twice,
             repeat(options, [&] { return timer.micro_batches(first.micro_batch, 2); }));
  profile.step_overhead_seconds =
      std::clamp(2 * first.seconds - twice.seconds, 0.0, 0.95 * first.seconds);
  for (CurvePoint& point : curve.points) point.seconds -= profile.step_overhead_seconds;
  curve.fit = fit_curve(curve.points);
  profile.curves.push_back(curve);

  progress("update");
  MOTLEY_TRY(const CurvePoint update, repeat(options, [&] { return timer.update(); }));
  profile.update_seconds = update.seconds;
  engine.reset();  // its memory is for the layers now
  MOTLEY_TRY_VOID(measure_layers(job, device, pacer, options, progress, &profile));
  return profile;
}

}  // namespace motley
