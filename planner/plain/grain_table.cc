#include "planner/plain/grain_table.h"

#include <algorithm>
#include <map>
#include <utility>

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
                      const std::vector<int>& sizes, const std::vector<double>& table, int most,
                      bool has_short) {
  std::vector<double> best(static_cast<size_t>(most) + 1, kNever);
  for (int grains = 1; grains <= most; ++grains) {
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

/// A bound on so many samples or more, whatever they are cut into. `seconds` of each micro-batch,
/// as from tabulated().
double least_seconds_of(const DeviceProfile& device, int samples,
                        const std::vector<double>& seconds) {
  constexpr double kRoundedDown = 1 - 1e-12;
  double least = kNever;  // of a sample
  for (size_t size = 1; size < seconds.size(); ++size)
    least = std::min(least, seconds[size] / static_cast<double>(size));
  return kRoundedDown *
         section_seconds(device.step_overhead_seconds + samples * least, device.update_seconds);
}

/// What decides a device's table: devices with equal keys share it.
std::vector<double> table_key(const DeviceProfile& device, const std::vector<int>& sizes) {
  std::vector<double> key{device.step_overhead_seconds, device.update_seconds};
  key.insert(key.end(), sizes.begin(), sizes.end());
  const LayerCurve& curve = *device.curve("model");
  key.push_back(-1);
  key.push_back(curve.fit.fixed);
  key.push_back(curve.fit.per_sample);
  for (const CurvePoint& point : curve.points) {
    key.push_back(point.micro_batch);
    key.push_back(point.seconds);
  }
  return key;
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
                            const std::vector<int>& sizes, int most) {
  const int all = cut.grains();
  if (most == 0) most = all;
  const int largest = std::min(sizes.back(), all * cut.grain);
  const std::vector<double> seconds = tabulated(device, largest);
  GrainTable table;
  table.full = make_curve(device, cut, sizes, seconds, most, false);
  if (cut.missing() > 0) table.shorted = make_curve(device, cut, sizes, seconds, most, true);
  if (most < all) table.beyond = least_seconds_of(device, cut.samples(most + 1, true), seconds);
  return table;
}

GrainTables::GrainTables(std::vector<DeviceSizes> devices, const StepCut& cut)
    : devices_(std::move(devices)), cut_(cut) {
  const auto usable = static_cast<int>(std::count_if(
      devices_.begin(), devices_.end(), [](const DeviceSizes& one) { return !one.sizes.empty(); }));
  constexpr int64_t kFewEntries = 1 << 16;
  constexpr int kLeastGrains = 24, kTimesMean = 8;
  most_ = cut_.grains();
  if (int64_t{usable} * cut_.grains() > kFewEntries)
    most_ = std::min(most_, std::max(kLeastGrains, kTimesMean * (cut_.grains() / usable + 1)));
  tabulate();
}

void GrainTables::lengthen() {
  constexpr int kTimes = 8;
  most_ = static_cast<int>(std::min<int64_t>(cut_.grains(), int64_t{most_} * kTimes));
  tabulate();
}

void GrainTables::tabulate() {
  std::map<std::vector<double>, std::shared_ptr<const GrainTable>> kinds;
  tables_.clear();
  beyond_ = kNever;
  for (const auto& [device, sizes] : devices_) {
    tables_.emplace_back();
    if (sizes.empty()) continue;
    auto& kind = kinds[table_key(*device, sizes)];
    if (!kind) kind = std::make_shared<GrainTable>(make_grain_table(*device, cut_, sizes, most_));
    beyond_ = std::min(beyond_, kind->beyond);
    tables_.back() = kind;
  }
  times_.clear();
  for (const auto& [key, kind] : kinds)
    for (const GrainCurve* curve : {&kind->full, &kind->shorted})
      for (const double seconds : curve->all())
        if (seconds < kNever) times_.push_back(seconds);
  std::sort(times_.begin(), times_.end());
  times_.erase(std::unique(times_.begin(), times_.end()), times_.end());
}

}  // namespace motley
