#include "planner/plain/grain_table.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/check.h"
#include "planner/costs/sums_beside.h"

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

/// A device's section, with what of the sums is left after it.
class Section {
 public:
  Section(const DeviceSizes& device, const std::vector<double>& seconds, const SumsBeside& sums)
      : device_(device), seconds_(seconds), sums_(sums) {}

  double in_micro_batches(int samples, int size) const {
    const DeviceProfile& device = *device_.device;
    const int full = samples / size, rest = samples % size;
    const double end =
        section_seconds(compute_seconds(device.step_overhead_seconds, full,
                                        full > 0 ? seconds_[static_cast<size_t>(size)] : 0,
                                        seconds_[static_cast<size_t>(rest)]),
                        device.update_seconds);
    if (sums_.seconds == 0) return end;
    const double backward = device_.backward[static_cast<size_t>(rest > 0 ? rest : size)];
    return end_with_sums(sums_, {end - backward, end});
  }

  MicroBatchChoice best(int samples) const {
    MicroBatchChoice best{0, kNever};
    for (const int size : device_.sizes) {
      const double seconds = in_micro_batches(samples, size);
      if (seconds < best.seconds) best = {size, seconds};
      if (size >= samples) break;  // larger ones compute the same single micro-batch
    }
    return best;
  }

 private:
  const DeviceSizes& device_;
  const std::vector<double>& seconds_;  ///< of each micro-batch, as from tabulated()
  const SumsBeside& sums_;
};

GrainCurve make_curve(const Section& section, const StepCut& cut, int most, bool has_short) {
  std::vector<double> best(static_cast<size_t>(most) + 1, kNever);
  for (int grains = 1; grains <= most; ++grains)
    best[static_cast<size_t>(grains)] = section.best(cut.samples(grains, has_short)).seconds;
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
std::vector<double> table_key(const DeviceSizes& sizes) {
  const DeviceProfile& device = *sizes.device;
  std::vector<double> key{device.step_overhead_seconds, device.update_seconds};
  key.insert(key.end(), sizes.sizes.begin(), sizes.sizes.end());
  key.push_back(-1);
  key.insert(key.end(), sizes.backward.begin(), sizes.backward.end());
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

GrainTable make_grain_table(const DeviceSizes& device, const StepCut& cut, int most,
                            const SumsBeside& sums) {
  const int all = cut.grains();
  if (most == 0) most = all;
  const std::vector<double> seconds =
      tabulated(*device.device, std::min(device.sizes.back(), all * cut.grain));
  const Section section(device, seconds, sums);
  GrainTable table;
  table.full = make_curve(section, cut, most, false);
  if (cut.missing() > 0) table.shorted = make_curve(section, cut, most, true);
  if (most < all)
    table.beyond = least_seconds_of(*device.device, cut.samples(most + 1, true), seconds);
  return table;
}

int micro_batch_beside(const DeviceSizes& device, int samples, const SumsBeside& sums) {
  const std::vector<double> seconds =
      tabulated(*device.device, std::min(device.sizes.back(), samples));
  return Section(device, seconds, sums).best(samples).micro_batch;
}

GrainTables::GrainTables(std::vector<DeviceSizes> devices, const StepCut& cut,
                         const SumsBeside& sums)
    : devices_(std::move(devices)), cut_(cut), sums_(sums) {
  const auto usable = static_cast<int>(std::count_if(
      devices_.begin(), devices_.end(), [](const DeviceSizes& one) { return !one.sizes.empty(); }));
  constexpr int64_t kFewEntries = 1 << 16;
  constexpr int kLeastGrains = 24, kTimesMean = 8;
  most_ = cut_.grains();
  if (int64_t{usable} * cut_.grains() > kFewEntries)
    most_ = std::min(most_, std::max(kLeastGrains, kTimesMean * (cut_.grains() / usable + 1)));
}

void GrainTables::lengthen() {
  constexpr int kTimes = 8;
  most_ = static_cast<int>(std::min<int64_t>(cut_.grains(), int64_t{most_} * kTimes));
  tables_.clear();
}

const GrainTables::Tables& GrainTables::with(double sums) const {
  const auto found = tables_.find(sums);
  return found != tables_.end() ? found->second
                                : tables_.emplace(sums, tabulated(sums)).first->second;
}

GrainTables::Tables GrainTables::tabulated(double seconds_of_sums) const {
  SumsBeside sums = sums_;
  sums.seconds = seconds_of_sums;
  std::map<std::vector<double>, std::shared_ptr<const GrainTable>> kinds;
  Tables tables;
  for (const DeviceSizes& device : devices_) {
    tables.of.emplace_back();
    if (device.sizes.empty()) continue;
    auto& kind = kinds[table_key(device)];
    if (!kind) kind = std::make_shared<GrainTable>(make_grain_table(device, cut_, most_, sums));
    tables.beyond = std::min(tables.beyond, kind->beyond);
    tables.of.back() = kind;
  }
  for (const auto& [key, kind] : kinds)
    for (const GrainCurve* curve : {&kind->full, &kind->shorted})
      for (const double seconds : curve->all())
        if (seconds < kNever) tables.times.push_back(seconds);
  std::sort(tables.times.begin(), tables.times.end());
  tables.times.erase(std::unique(tables.times.begin(), tables.times.end()), tables.times.end());
  return tables;
}

}  // namespace motley
