#include "worker/profiler/curve.h"

#include <algorithm>
#include <limits>
#include <set>
#include <string>

#include "core/median.h"

namespace motley {
namespace {

/// A larger micro-batch that is quicker by more than this was measured badly, or the smaller was.
constexpr double kTolerance = 0.05;
constexpr int kMostRounds = 4;
constexpr int kMostSections = 1000;  ///< of a repetition, should they take no time
/// What the step's fixed cost may be of the quickest point: something must remain for its samples.
constexpr double kMostOverhead = 0.95;

bool enough(const ProfilerOptions& options, size_t repetitions, double seconds) {
  const auto count = static_cast<int>(repetitions);
  return count >= options.most_repetitions ||
         (count >= options.least_repetitions && seconds >= options.seconds_per_point);
}

/// What is told of something and how long it took.
struct Timed {
  double value = 0, spent = 0;
};

struct Repetition {
  double mean = 0, spent = 0;  ///< of its values; all that they took
};

Result<Repetition> one_repetition(const ProfilerOptions& options,
                                  const std::function<Result<Timed>()>& measure) {
  Repetition repetition;
  int count = 0;
  do {
    MOTLEY_TRY(const Timed once, measure());
    repetition.mean += once.value;
    repetition.spent += once.spent;
    ++count;
  } while (repetition.spent < options.least_repetition_seconds && count < kMostSections);
  repetition.mean /= count;
  return repetition;
}

class CurveMeasurement {
 public:
  CurveMeasurement(const TimeSection& section, const ProfilerOptions& options,
                   const ProfilerProgress& progress)
      : section_(section), options_(options), progress_(progress) {}

  Result<std::vector<CurvePoint>> points(const std::vector<int>& sizes) {
    std::vector<CurvePoint> points;
    for (const int size : sizes) {
      MOTLEY_TRY(const CurvePoint point, point_of(size));
      points.push_back(point);
      if (points.size() >= 3 && point.seconds > options_.longest_repetition) break;
    }
    for (int round = 1; round < kMostRounds; ++round)
      MOTLEY_TRY_VOID(measure_again(suspicious(points), &points));
    return points;
  }

  /// One micro-batch costs fixed + t, two cost fixed + 2 t: the smallest size shows the fixed part
  /// best. Each pair is measured in one go, so that both see the same disturbance.
  Result<double> overhead(int size) {
    progress_("overhead of a step");
    std::vector<double> fixed;
    double total = 0;
    while (!enough(options_, fixed.size(), total)) {
      progress_({});
      MOTLEY_TRY(const Repetition pairs, one_repetition(options_, [&]() -> Result<Timed> {
                   MOTLEY_TRY(const double once, section_(size, 1));
                   MOTLEY_TRY(const double twice, section_(size, 2));
                   return Timed{2 * once - twice, once + twice};
                 }));
      fixed.push_back(pairs.mean);
      total += pairs.spent;
    }
    return *median(std::move(fixed));
  }

 private:
  Result<CurvePoint> point_of(int size) {
    progress_("micro-batch " + std::to_string(size));
    MOTLEY_TRY(CurvePoint point, repeat(
                                     options_, [&] { return section_(size, 1); }, progress_));
    if (point.seconds <= 0)
      return fail(ErrorCode::kRunFailed,
                  "a micro-batch of " + std::to_string(size) +
                      " took no time that could be measured; train a larger model");
    point.micro_batch = size;
    return point;
  }

  static std::set<size_t> suspicious(const std::vector<CurvePoint>& points) {
    std::set<size_t> found;
    for (size_t i = 0; i + 1 < points.size(); ++i)
      if (points[i].seconds > points[i + 1].seconds * (1 + kTolerance)) found.insert({i, i + 1});
    return found;
  }

  Result<Unit> measure_again(const std::set<size_t>& which, std::vector<CurvePoint>* points) {
    for (const size_t i : which) {
      CurvePoint& before = (*points)[i];
      MOTLEY_TRY(const CurvePoint again, point_of(before.micro_batch));
      if (again.seconds < before.seconds) before = again;
    }
    return Unit{};
  }

  const TimeSection& section_;
  const ProfilerOptions& options_;
  const ProfilerProgress& progress_;
};

}  // namespace

double start_seconds(double measured, double quickest_section, double quickest_of_model) {
  constexpr double kPartOfModel = 0.02;
  const double of_model =
      quickest_of_model < std::numeric_limits<double>::infinity() ? quickest_of_model : 0;
  return std::min(measured, std::max(quickest_section, kPartOfModel * of_model));
}

Result<CurvePoint> repeat(const ProfilerOptions& options,
                          const std::function<Result<double>()>& measure,
                          const ProfilerProgress& progress) {
  std::vector<double> seconds;
  double total = 0;
  while (!enough(options, seconds.size(), total)) {
    progress({});
    MOTLEY_TRY(const Repetition repetition, one_repetition(options, [&]() -> Result<Timed> {
                 MOTLEY_TRY(const double once, measure());
                 return Timed{once, once};
               }));
    seconds.push_back(repetition.mean);
    total += repetition.spent;
  }
  const auto [least, most] = std::minmax_element(seconds.begin(), seconds.end());
  CurvePoint point;
  point.seconds = *median(seconds);
  point.spread = point.seconds > 0 ? (*most - *least) / point.seconds : 0;
  point.repetitions = static_cast<int>(seconds.size());
  return point;
}

Result<MeasuredCurve> measure_curve(const std::vector<int>& sizes, const TimeSection& section,
                                    const ProfilerOptions& options,
                                    const ProfilerProgress& progress) {
  CurveMeasurement measurement(section, options, progress);
  MeasuredCurve measured;
  std::vector<CurvePoint>& points = measured.curve.points;
  MOTLEY_TRY(points, measurement.points(sizes));
  MOTLEY_TRY(const double overhead, measurement.overhead(sizes.front()));
  double quickest = points.front().seconds;
  for (const CurvePoint& point : points) quickest = std::min(quickest, point.seconds);
  measured.step_overhead_seconds = std::clamp(overhead, 0.0, kMostOverhead * quickest);
  for (CurvePoint& point : points) point.seconds -= measured.step_overhead_seconds;
  measured.curve.fit = fit_curve(points);
  return measured;
}

}  // namespace motley
