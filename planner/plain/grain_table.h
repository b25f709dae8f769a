#pragma once
// One device as the search sees it: its shortest section for each number of grains.

#include <limits>
#include <map>
#include <memory>
#include <vector>

#include "core/profile.h"
#include "planner/costs/cost_model.h"
#include "planner/costs/sums_beside.h"

namespace motley {

inline constexpr double kNever = std::numeric_limits<double>::infinity();

/// Seconds of a section, update included, by number of grains, 1 to the most tabulated; not assumed
/// to rise with it. Index 0 is kNever: a device without grains is not used.
class GrainCurve {
 public:
  GrainCurve() = default;
  explicit GrainCurve(std::vector<double> seconds);

  double seconds(int grains) const {
    const auto at = static_cast<size_t>(grains);
    return at < seconds_.size() ? seconds_[at] : kNever;
  }
  const std::vector<double>& all() const { return seconds_; }
  /// The most grains it computes within `limit`; 0 if none.
  int most_within(double limit) const;
  /// The most grains such that it computes every smaller number within `limit` too.
  int whole_within(double limit) const;

 private:
  std::vector<double> seconds_;
  std::vector<double> least_from_;  ///< least_from_[g]: least seconds of g grains or more
  std::vector<double> most_up_to_;  ///< most_up_to_[g]: most seconds of 1 to g grains
};

/// A kind of device at one grain. Devices measured alike share one.
struct GrainTable {
  GrainCurve full;         ///< of whole grains
  GrainCurve shorted;      ///< the last of them is the step's short one; empty when there is none
  double beyond = kNever;  ///< no more grains than are tabulated take less; kNever: all are
};

/// How a step is cut.
struct StepCut {
  int global_batch = 0;
  int grain = 0;
  int grains() const { return (global_batch + grain - 1) / grain; }
  int missing() const { return grains() * grain - global_batch; }  ///< samples of the short grain
  int samples(int device_grains, bool has_short) const {
    return device_grains * grain - (has_short ? missing() : 0);
  }
};

/// A device and the micro-batches that it may compute, as from micro_batch_sizes; none: it cannot
/// be used.
struct DeviceSizes {
  const DeviceProfile* device = nullptr;
  std::vector<int> sizes = {};
  /// Seconds of the backward pass of each micro-batch up to the largest, where gradients may be
  /// summed beside it; else empty.
  std::vector<double> backward = {};
};

/// Of one device that can be used, of `most` grains at most: 0 means all. Where gradients are
/// summed beside computing a section ends with its own: the last of them is the step's.
GrainTable make_grain_table(const DeviceSizes& device, const StepCut& cut, int most = 0,
                            const SumsBeside& sums = {});

/// The quickest of a device's micro-batches for so many samples; the smallest among equals.
int micro_batch_beside(const DeviceSizes& device, int samples, const SumsBeside& sums);

/// The tables of a fleet. Of many devices only as many grains as one could have to compute: deals
/// whose sections are below `beyond` are the same with longer tables.
class GrainTables {
 public:
  /// `sums`, but for their seconds: of all that are asked for.
  GrainTables(std::vector<DeviceSizes> devices, const StepCut& cut, const SumsBeside& sums = {});

  /// By device, whose sections end with so many seconds of sums; null: it cannot be used.
  const std::vector<std::shared_ptr<const GrainTable>>& of(double sums = 0) const {
    return with(sums).of;
  }
  const std::vector<double>& section_times(double sums = 0) const { return with(sums).times; }
  double beyond() const { return with(0).beyond; }  ///< and of no sums less
  /// With several times as many grains.
  void lengthen();

 private:
  struct Tables {
    std::vector<std::shared_ptr<const GrainTable>> of;
    std::vector<double> times;
    double beyond = kNever;
  };
  const Tables& with(double sums) const;
  Tables tabulated(double sums) const;

  std::vector<DeviceSizes> devices_;
  StepCut cut_;
  SumsBeside sums_;
  int most_ = 0;                             ///< grains
  mutable std::map<double, Tables> tables_;  ///< by seconds of sums
};

}  // namespace motley
