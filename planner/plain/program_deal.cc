#include "planner/plain/program_deal.h"

#include <algorithm>
#include <map>
#include <set>

#include "planner/costs/cost_model.h"
#include "planner/plain/deal.h"
#include "planner/plain/grain_table.h"

namespace motley {
namespace {

StepCut cut_of(const TrainSpec& train) { return {train.global_batch, train.grain.value_or(1)}; }

/// Never fewer samples than were measured: what takes a mean over them may fail with one.
GrainCurve without_fewer(int least, const GrainCurve& curve, const StepCut& cut, bool has_short) {
  std::vector<double> seconds = curve.all();
  for (size_t grains = 0; grains < seconds.size(); ++grains)
    if (cut.samples(static_cast<int>(grains), has_short) < least) seconds[grains] = kNever;
  return seconds.empty() ? GrainCurve() : GrainCurve(std::move(seconds));
}

GrainTable table_of(const DeviceProfile& device, const StepCut& cut,
                    const std::vector<int>& sizes) {
  GrainTable table = make_grain_table({&device, sizes}, cut);
  table.full = without_fewer(sizes.front(), table.full, cut, false);
  table.shorted = without_fewer(sizes.front(), table.shorted, cut, true);
  return table;
}

}  // namespace

std::vector<int> program_sizes(const DeviceProfile& device, int most) {
  constexpr int kAllUpTo = 128;
  const LayerCurve* curve = device.curve("model");
  if (curve == nullptr || curve->points.empty()) return {};
  const int largest = std::min(most, curve->points.back().micro_batch);
  std::set<int> sizes;
  for (int size = curve->points.front().micro_batch; size <= largest;
       size += size < kAllUpTo ? 1 : size / kAllUpTo)
    sizes.insert(size);
  for (const CurvePoint& point : curve->points)
    if (point.micro_batch <= largest) sizes.insert(point.micro_batch);
  return {sizes.begin(), sizes.end()};
}

std::vector<RankShare> equal_shares(const TrainSpec& train, int ranks) {
  const StepCut cut = cut_of(train);
  std::vector<RankShare> shares;
  int before = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const int grains = cut.grains() / ranks + (rank < cut.grains() % ranks ? 1 : 0);
    const int end = std::min(cut.global_batch, (before + grains) * cut.grain);
    const int samples = end - std::min(cut.global_batch, before * cut.grain);
    shares.push_back({samples, train.grain ? std::min(cut.grain, samples) : samples});
    before += grains;
  }
  return shares;
}

Result<ProgramDeal> deal_program(const TrainSpec& train, const std::vector<DeviceProfile>& devices,
                                 int least_devices) {
  const StepCut cut = cut_of(train);
  std::vector<std::vector<int>> sizes;
  std::map<std::string, GrainTable> tables;  // by identity: equal devices share one
  DealProblem problem;
  problem.grains = cut.grains();
  problem.has_short = cut.missing() > 0;
  std::vector<size_t> usable;
  for (size_t i = 0; i < devices.size(); ++i) {
    sizes.push_back(program_sizes(devices[i], cut.global_batch));
    if (sizes.back().empty()) continue;
    const auto found = tables.find(devices[i].identity);
    const GrainTable& table =
        found != tables.end()
            ? found->second
            : tables.emplace(devices[i].identity, table_of(devices[i], cut, sizes.back()))
                  .first->second;
    problem.devices.push_back(&table);
    usable.push_back(i);
  }
  if (usable.empty())
    return fail(ErrorCode::kNoPlan, "no device has been measured with the program");
  problem.reduction.assign(usable.size() + 1, 0.0);
  problem.most_devices = static_cast<int>(usable.size());
  problem.least_devices =
      std::clamp(least_devices, 1, std::min(problem.most_devices, problem.grains));
  const std::vector<double> times = section_times(problem.devices);
  problem.section_times = &times;
  const Deal deal = best_deal(problem).deal;
  if (!(deal.step_seconds < kNever))
    return fail(ErrorCode::kNoPlan, "a step has too few samples for " +
                                        std::to_string(problem.least_devices) + " devices");
  ProgramDeal result{std::vector<RankShare>(devices.size()), deal.step_seconds};
  for (size_t k = 0; k < usable.size(); ++k) {
    if (deal.grains[k] == 0) continue;
    const size_t i = usable[k];
    const int samples =
        cut.samples(deal.grains[k], problem.has_short && static_cast<int>(k) == deal.short_device);
    result.shares[i] = {samples, best_micro_batch(devices[i], samples, sizes[i]).micro_batch};
  }
  return result;
}

}  // namespace motley
