#include "planner/costs/sums_beside.h"

#include <algorithm>

#include "core/spec/precisions.h"
#include "planner/costs/cost_model.h"
#include "planner/costs/links.h"

namespace motley {
namespace {

/// Matrices are made factors of when all of them is there. Groups that average are predicted as if
/// they summed afterwards, too.
bool may_begin_early(const LinkCompression& compression, int across) {
  return !compression.factors() && across <= 1;
}

/// What of a scaled loss overflows is computed again, by when compression must not have kept it.
bool may_repeat(const PlanRequest& request, const DeviceSpec& device) {
  const DeviceProfile* const measured = request.profile.find(device.id);
  const Precision planned = measured == nullptr ? Precision::kAuto : measured->precision;
  return precision_allowed(request.job, device, planned) == Precision::kFp16;
}

bool may_repeat(const Plan& plan) {
  for (const ReplicaPlan& replica : plan.replicas)
    for (const StagePlan& stage : replica.stages)
      if (stage.precision == Precision::kFp16) return true;
  return false;
}

/// Whoever waits so long for sums, with what the rest of these takes of computing.
double held_up(double waits, const SumsBeside& sums) {
  return waits + sums.busy_share * std::max(0.0, sums.seconds - waits);
}

}  // namespace

bool sums_go_beside(const PlanRequest& request, const Plan& plan, const DeviceIndex& index) {
  const LinkCompression compression =
      plan.compression.on() ? plan.compression : compression_wanted(request.job);
  return may_begin_early(compression,
                         std::max(plan.sync.across, request.job.parallel.sync.across)) &&
         std::all_of(plan.ranks.begin(), plan.ranks.end(),
                     [&](const RankPlacement& rank) {
                       const DeviceSpec* const device = index.spec(rank.device);
                       return device != nullptr && computes_beside_sums(*device);
                     }) &&
         !(compression.on() && may_repeat(plan));
}

PlansBeside plans_with_sums_beside(const PlanRequest& request) {
  const auto& devices = request.fleet.devices;
  if (std::none_of(devices.begin(), devices.end(), computes_beside_sums) ||
      !may_begin_early(compression_wanted(request.job), request.job.parallel.sync.across))
    return PlansBeside::kNone;
  const FleetSpec some = devices_with_sums_beside(request);
  if (some.single_host()) return PlansBeside::kNone;
  const bool all = some.devices.size() == fitting(request.fleet, request.job).devices.size();
  return all ? PlansBeside::kAll : PlansBeside::kOfSome;
}

FleetSpec devices_with_sums_beside(const PlanRequest& request) {
  FleetSpec fleet = fitting(request.fleet, request.job);
  const bool compresses = compression_wanted(request.job).on();
  std::erase_if(fleet.devices, [&](const DeviceSpec& device) {
    return !computes_beside_sums(device) || (compresses && may_repeat(request, device));
  });
  return fleet;
}

double part_of_first_layer(const ModelSpec& model, LayerIndex first, LayerIndex last) {
  double all = 0, of_first = 0;
  for (const LogicalTensor& tensor : logical_tensors(model, first, last)) {
    const auto elements = static_cast<double>(tensor.elements());
    const auto& layers = tensor.layers;
    all += elements;
    if (std::find(layers.begin(), layers.end(), first) != layers.end()) of_first += elements;
  }
  return of_first / all;
}

SumsBeside sums_of_whole(const PlanRequest& request, double seconds) {
  const ModelSpec& model = request.job.model;
  return {seconds, part_of_first_layer(model, 0, layer_count(model) - 1),
          busy_share(request.profile)};
}

double end_with_sums(const SumsBeside& gradients, const PassTimes& backward) {
  const double last = gradients.part_of_first_layer * gradients.seconds;
  const double waits = std::max({0.0, last, backward.begins + gradients.seconds - backward.ends});
  return backward.ends + held_up(waits, gradients);
}

double end_with_weights(const SumsBeside& weights, const PassTimes& forward, double ready) {
  const double first = ready + weights.part_of_first_layer * weights.seconds;
  const double waits =
      std::max({0.0, first - forward.begins, ready + weights.seconds - forward.ends});
  return forward.ends + held_up(waits, weights);
}

}  // namespace motley
