#pragma once
// A curve from timings that other programs may disturb. They only ever add time, so medians are
// taken over repetitions, and where one size seems to take longer than a larger one both are
// measured again and the quicker round counts.

#include <functional>
#include <vector>

#include "core/profile.h"
#include "core/result.h"
#include "worker/profiler/profiler.h"

namespace motley {

/// Seconds of a section of `count` micro-batches of `samples`: the step's fixed cost and theirs.
using TimeSection = std::function<Result<double>(int samples, int count)>;

struct MeasuredCurve {
  LayerCurve curve;
  double step_overhead_seconds = 0;  ///< taken off every point; less than any of them took
};

/// `sizes` rise; large ones are left out as options.longest_repetition says. kRunFailed when a
/// section takes no time.
Result<MeasuredCurve> measure_curve(const std::vector<int>& sizes, const TimeSection& section,
                                    const ProfilerOptions& options,
                                    const ProfilerProgress& progress);

/// What beginning a section takes, of what was measured with the whole model, at whose times what
/// disturbs it is large: every section begins with it, so that it is no more than the quickest
/// took, but for a small part of the model's quickest, which may be what starting all of it takes.
/// Seconds; infinite where nothing was measured.
double start_seconds(double measured, double quickest_section, double quickest_of_model);

/// A point without a size: median, spread and number of the repetitions of anything. `progress` is
/// called with nothing before each.
Result<CurvePoint> repeat(const ProfilerOptions& options,
                          const std::function<Result<double>()>& measure,
                          const ProfilerProgress& progress);

}  // namespace motley
