// The prediction of a data-parallel plan, whoever made it.

#include <algorithm>
#include <map>
#include <set>

#include "planner/cost_model.h"
#include "planner/deal.h"

namespace motley {
namespace {

/// How far a duration taken from the curve may be off: what was seen at the points around it, and
/// where there is no point, what the straight line misses.
double uncertainty_at(const LayerCurve& curve, int micro_batch) {
  double uncertainty = 0;
  bool is_point = false;
  for (size_t i = 0; i < curve.points.size(); ++i) {
    const CurvePoint& point = curve.points[i];
    const bool below =
        point.micro_batch <= micro_batch &&
        (i + 1 == curve.points.size() || curve.points[i + 1].micro_batch > micro_batch);
    const bool above = point.micro_batch >= micro_batch &&
                       (i == 0 || curve.points[i - 1].micro_batch < micro_batch);
    if (below || above) uncertainty = std::max(uncertainty, point.spread);
    if (point.micro_batch == micro_batch) is_point = true;
  }
  return is_point ? uncertainty : std::max(uncertainty, curve.fit.residual);
}

Bytes memory_at(const DeviceProfile& device, int micro_batch) {
  for (const MemoryPoint& point : device.memory) {
    if (point.micro_batch >= micro_batch) return point.total();
  }
  return device.memory.back().total();
}

RankPrediction predict_rank(const PlanRequest& request, const Plan& plan, int replica,
                            const DeviceProfile& device) {
  const ReplicaPlan& own = plan.replicas[static_cast<size_t>(replica)];
  RankPrediction rank;
  rank.rank = own.stages[0].ranks[0];
  rank.compute_seconds = device_seconds(device, samples_of(plan, replica).count, own.micro_batch);
  rank.update_seconds = device.update_seconds;
  rank.memory = memory_at(device, own.micro_batch);
  rank.memory_limit = device.memory_limit;
  rank.solo_samples_per_second =
      solo_samples_per_second(device, plan.global_batch, solo_rule(plan, request.memory_headroom));
  return rank;
}

/// The step if communication were free and these devices' whole grains were dealt perfectly.
double ideal_step_seconds(const PlanRequest& request, const Plan& plan,
                          const std::vector<const DeviceProfile*>& devices) {
  const StepCut cut{plan.global_batch, plan.grain};
  std::vector<GrainTable> tables;
  for (const DeviceProfile* device : devices) {
    const std::vector<int> sizes =
        micro_batch_sizes(*device, micro_batch_rule(request, plan.grain));
    if (!sizes.empty()) tables.push_back(make_grain_table(*device, cut, sizes));
  }
  DealProblem problem;
  problem.grains = cut.grains();
  problem.has_short = cut.missing() > 0;
  for (const GrainTable& table : tables) problem.devices.push_back(&table);
  problem.reduction.assign(tables.size() + 1, 0);
  problem.most_devices = static_cast<int>(tables.size());
  const std::vector<double> times = section_times(problem.devices);
  problem.section_times = &times;
  return best_deal(problem).deal.step_seconds;
}

/// By rank, from the replicas.
Result<std::vector<const DeviceProfile*>> devices_of(const PlanRequest& request, const Plan& plan) {
  std::vector<const DeviceProfile*> devices;
  for (const RankPlacement& rank : plan.ranks) {
    const DeviceProfile* device = request.profile.find(rank.device);
    if (device == nullptr || device->curve("model") == nullptr) {
      return fail(ErrorCode::kInvalidSpec,
                  "the profile lacks " + rank.device + " (" + rank.type + "), which the plan uses");
    }
    devices.push_back(device);
  }
  return devices;
}

std::vector<std::string> hosts_of(const Plan& plan) {
  std::set<std::string> hosts;
  for (const RankPlacement& rank : plan.ranks) hosts.insert(rank.host);
  return {hosts.begin(), hosts.end()};
}

double price_of(const FleetSpec& fleet, const Plan& plan) {
  double price = 0;
  for (const RankPlacement& rank : plan.ranks) {
    if (const DeviceSpec* device = fleet.find(rank.device)) price += device->price_per_hour;
  }
  return price;
}

}  // namespace

Result<Unit> predict(const PlanRequest& request, Plan* plan) {
  MOTLEY_TRY(const std::vector<const DeviceProfile*> devices, devices_of(request, *plan));
  Prediction prediction;
  prediction.ranks.resize(plan->ranks.size());
  for (size_t i = 0; i < plan->replicas.size(); ++i) {
    const auto rank = static_cast<size_t>(plan->replicas[i].stages[0].ranks[0].value());
    const DeviceProfile& device = *devices[rank];
    const RankPrediction& own = prediction.ranks[rank] =
        predict_rank(request, *plan, static_cast<int>(i), device);
    prediction.solo_sum_samples_per_second += own.solo_samples_per_second;
    prediction.uncertainty =
        std::max(prediction.uncertainty,
                 uncertainty_at(*device.curve("model"), plan->replicas[i].micro_batch));
  }
  const ReductionModel reduction(request.profile, gradient_bytes(request.job));
  prediction.communication_seconds = reduction.seconds(plan->world_size(), hosts_of(*plan));
  const RankPrediction& slowest = *prediction.slowest();
  prediction.compute_seconds = slowest.compute_seconds;
  prediction.update_seconds = slowest.update_seconds;
  prediction.step_seconds =
      step_seconds(slowest.section_seconds(), prediction.communication_seconds);
  prediction.samples_per_second = plan->global_batch / prediction.step_seconds;
  prediction.cost_per_hour = price_of(request.fleet, *plan);
  for (RankPrediction& rank : prediction.ranks) {
    rank.wait_seconds = slowest.section_seconds() - rank.section_seconds();
  }
  if (prediction.solo_sum_samples_per_second > 0) {
    prediction.integer_bound_efficiency = plan->global_batch /
                                          ideal_step_seconds(request, *plan, devices) /
                                          prediction.solo_sum_samples_per_second;
  }
  plan->prediction = std::move(prediction);
  return Unit{};
}

}  // namespace motley
