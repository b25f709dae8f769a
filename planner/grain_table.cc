#include "planner/grain_table.h"

#include <algorithm>

#include "core/check.h"

namespace motley {
namespace {

/// The device's curve at every size that can occur, looked up once.
std::vector<double> tabulated(const DeviceProfile& device, int largest) {
  const LayerCurve* curve = device.curve("model");
  MOTLEY_CHECK(curve != nullptr, device.device + " has no curve \"model\"");
  std::vector<double> seconds(static_cast<size_t>(largest) + 1, 0);
  for (int size = 1; size <= largest; ++size) {
    seconds[static_cast<size_t>(size)] = curve->seconds_at(size);
  }
  return seconds;
}

GrainCurve make_curve(const DeviceProfile& device, const StepCut& cut,
                      const std::vector<int>& sizes, bool has_short) {
  const int largest = std::min(sizes.back(), cut.grains() * cut.grain);
  const std::vector<double> table = tabulated(device, largest);
  std::vector<double> best(static_cast<size_t>(cut.grains()) + 1, kNever);
  for (int grains = 1; grains <= cut.grains(); ++grains) {
    const int samples = cut.samples(grains, has_short);
    double& least = best[static_cast<size_t>(grains)];
    for (const int size : sizes) {
      const int full = samples / size;
      const double seconds = compute_seconds(device.step_overhead_seconds, full,
                                             full > 0 ? table[static_cast<size_t>(size)] : 0,
                                             table[static_cast<size_t>(samples % size)]);
      least = std::min(least, seconds);
      if (size >= samples) break;
    }
    least = section_seconds(least, device.update_seconds);
  }
  return GrainCurve(std::move(best));
}

}  // namespace

GrainCurve::GrainCurve(std::vector<double> seconds) : seconds_(std::move(seconds)) {
  least_from_ = seconds_;
  for (size_t g = seconds_.size() - 1; g-- > 1;) {
    least_from_[g] = std::min(least_from_[g], least_from_[g + 1]);
  }
  most_up_to_ = seconds_;
  for (size_t g = 2; g < seconds_.size(); ++g) {
    most_up_to_[g] = std::max(most_up_to_[g], most_up_to_[g - 1]);
  }
}

int GrainCurve::most_within(double limit) const {
  const auto beyond = std::upper_bound(least_from_.begin() + 1, least_from_.end(), limit);
  return static_cast<int>(beyond - least_from_.begin()) - 1;
}

int GrainCurve::whole_within(double limit) const {
  const auto beyond = std::upper_bound(most_up_to_.begin() + 1, most_up_to_.end(), limit);
  return static_cast<int>(beyond - most_up_to_.begin()) - 1;
}

GrainTable make_grain_table(const DeviceProfile& device, const StepCut& cut,
                            const std::vector<int>& sizes) {
  GrainTable table;
  table.full = make_curve(device, cut, sizes, false);
  if (cut.missing() > 0) table.shorted = make_curve(device, cut, sizes, true);
  return table;
}

}  // namespace motley
