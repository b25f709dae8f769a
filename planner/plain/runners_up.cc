#include "planner/plain/runners_up.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "core/units.h"
#include "planner/plain/device_index.h"
#include "planner/plain/one_more.h"
#include "planner/plain/search.h"

namespace motley {
namespace {

constexpr size_t kMostRejected = 12;
constexpr double kRounding = 1e-6;  ///< of a step

/// What one more device would do to the step.
std::string reason_of(const GrainSearch& search, const Deal& chosen, bool finer_tried,
                      size_t candidate, OneMoreDevice* one_more) {
  const std::string now = format_seconds(chosen.step_seconds);
  const std::string grain = std::to_string(search.cut().grain);
  const bool all_dealt = chosen.devices() >= search.cut().grains();
  const double with = all_dealt ? kNever : one_more->step_seconds_with(candidate);
  if (with == kNever && finer_tried)
    return "would not shorten the step of " + now + " with finer grains";
  if (all_dealt) return "each grain of " + grain + " already has a device";
  if (with == kNever) return "cannot compute in grains of " + grain;
  if (with <= chosen.step_seconds || equally_quick(with, chosen.step_seconds))
    return "would not shorten the step of " + now;
  return "would slow the step from " + now + " to " + format_seconds(with) +
         (finer_tried ? ", in grains of " + grain + " as now" : "");
}

/// The rank that decides a plan's step, and how many samples it has.
std::string slowest_rank(const Plan& plan) {
  const RankPrediction* slowest = plan.prediction.slowest();
  for (size_t i = 0; i < plan.replicas.size(); ++i) {
    if (plan.replicas[i].stages[0].ranks[0] != slowest->rank) continue;
    const RankPlacement& place = plan.ranks[static_cast<size_t>(slowest->rank.value())];
    return place.device + " (" + place.type + ") computes " +
           format_seconds(slowest->compute_seconds) + " for " +
           std::to_string(samples_of(plan, static_cast<int>(i)).count) + " samples";
  }
  return "";
}

/// Whether a coarser grain could deal the plan's own shares.
bool cuts_same_shares(const Plan& plan, int grain) {
  for (size_t i = 0; i < plan.replicas.size(); ++i)
    if (samples_of(plan, static_cast<int>(i)).count % grain != 0) return false;
  return true;
}

/// What is wrong with a coarser grain whose step takes `step` seconds.
std::string fault_of_coarser(const Plan& plan, int grain, double step) {
  if (step == kNever) return "no device fits whole grains";
  if (equally_quick(step, plan.prediction.step_seconds)) return "equally quick";
  return cuts_same_shares(plan, grain) ? "micro-batches cannot be cut as finely"
                                       : "shares cannot be cut as finely";
}

/// The nearest finer grain and the two nearest coarser ones.
void add_grains(const std::vector<GrainResult>& grains,
                const std::function<double(int grain)>& step_with, const Plan& plan,
                std::vector<RejectedPlan>* rejected) {
  const auto chosen = std::find_if(grains.begin(), grains.end(), [&](const GrainResult& result) {
    return result.grain == plan.grain;
  });
  if (chosen != grains.begin()) {
    const double step = std::min((chosen - 1)->step_seconds, step_with((chosen - 1)->grain));
    const bool equal = equally_quick(step, plan.prediction.step_seconds);
    rejected->push_back(
        {"grain " + std::to_string((chosen - 1)->grain),
         std::string(equal ? "equally quick" : "no quicker") + ", and more grains to deal", step});
  }
  for (auto coarser = chosen + 1; coarser < std::min(chosen + 3, grains.end()); ++coarser) {
    const double step = step_with(coarser->grain);
    rejected->push_back({"grain " + std::to_string(coarser->grain),
                         fault_of_coarser(plan, coarser->grain, step), step < kNever ? step : 0});
  }
}

void add_equal_split(const PlanRequest& request, const Plan& plan,
                     std::vector<RejectedPlan>* rejected) {
  const Result<Plan> equal = equal_split_within_tables(request);
  if (!equal || equal->prediction.step_seconds <= plan.prediction.step_seconds) return;
  rejected->push_back({"equal split over " + std::to_string(equal->world_size()) + " devices",
                       slowest_rank(*equal), equal->prediction.step_seconds});
}

void add_quickest_alone(const PlanRequest& request, const Candidates& candidates, const Plan& plan,
                        std::vector<RejectedPlan>* rejected) {
  if (plan.world_size() < 2) return;
  const Candidate* quickest = nullptr;
  double best = 0;
  for (const Candidate& candidate : candidates.devices) {
    const double speed =
        solo_samples_per_second(*candidate.profile, plan.global_batch, micro_batch_rule(request));
    if (speed > best) best = speed, quickest = &candidate;
  }
  if (quickest == nullptr) return;
  rejected->push_back({quickest->name() + " alone",
                       "the others save " +
                           format_seconds(plan.global_batch / best - plan.prediction.step_seconds) +
                           " a step",
                       plan.global_batch / best});
}

/// The next micro-batch of devices that would have use for more than their memory allows.
void add_memory_limits(const PlanRequest& request, const Plan& plan,
                       std::vector<RejectedPlan>* rejected) {
  const MicroBatchRule rule = micro_batch_rule(request, plan.grain);
  if (rule.exact) return;
  const DeviceIndex index(request.fleet, request.profile);
  for (const ReplicaPlan& replica : plan.replicas) {
    const RankPlacement& place =
        plan.ranks[static_cast<size_t>(replica.stages[0].ranks[0].value())];
    const DeviceProfile& device = *index.profile(place.device);
    if (replica.micro_batch < micro_batch_sizes(device, rule).back()) continue;
    const Bytes usable = usable_memory(device, rule.headroom);
    for (const MemoryPoint& point : device.memory) {
      const int size = micro_batch_of(point.micro_batch, rule);
      if (size == 0 || point.total() <= usable) continue;
      if (size > replica.grains * plan.grain) break;
      rejected->push_back({"micro-batch " + std::to_string(size) + " on " + place.device,
                           "needs " + format_bytes(point.total()) + " of " + format_bytes(usable),
                           0});
      break;
    }
  }
}

}  // namespace

bool equally_quick(double step_seconds, double other_step_seconds) {
  return std::abs(step_seconds - other_step_seconds) <=
         kRounding * std::min(step_seconds, other_step_seconds);
}

std::string grains_tried(const std::vector<GrainResult>& tried) {
  std::string grains;
  for (const GrainResult& result : tried)
    grains += (grains.empty() ? "" : ", ") + std::to_string(result.grain);
  return grains;
}

std::vector<LeftOut> reasons_left_out(const Candidates& candidates, const GrainSearch& search,
                                      const Deal& chosen, bool finer_tried) {
  std::vector<LeftOut> left_out;
  OneMoreDevice one_more(search, chosen);
  const bool count_reached = chosen.devices() >= candidates.most_devices;
  for (size_t i = 0; i < candidates.devices.size(); ++i) {
    if (chosen.grains[i] > 0) continue;
    left_out.push_back({candidates.devices[i].spec->id,
                        count_reached ? candidates.why_no_more
                                      : reason_of(search, chosen, finer_tried, i, &one_more)});
  }
  return left_out;
}

std::vector<RejectedPlan> runners_up(const PlanRequest& request, const Candidates& candidates,
                                     const ReductionTable& reduction,
                                     const std::vector<GrainResult>& grains, const Plan& plan) {
  std::vector<RejectedPlan> rejected;
  const auto step_with = [&](int grain) {
    return GrainSearch(request, candidates, reduction, grain).run().deal.step_seconds;
  };
  add_grains(grains, step_with, plan, &rejected);
  add_equal_split(request, plan, &rejected);
  add_quickest_alone(request, candidates, plan, &rejected);
  add_memory_limits(request, plan, &rejected);
  std::stable_sort(rejected.begin(), rejected.end(), [](const auto& a, const auto& b) {
    return std::pair(a.step_seconds == 0, a.step_seconds) <
           std::pair(b.step_seconds == 0, b.step_seconds);
  });
  if (rejected.size() > kMostRejected) rejected.resize(kMostRejected);
  return rejected;
}

}  // namespace motley
