#include "planner/plain/plan_again.h"

#include <algorithm>
#include <string>
#include <unordered_set>
#include <utility>

#include "planner/plain/grains.h"
#include "planner/plain/one_more.h"

namespace motley {
namespace {

/// Devices that may come instead of those lost, each after a look at all that are left.
constexpr int kMostInstead = 4;

bool is_of_use(const Plan& previous, const PlanRequest& request, const std::vector<int>& grains) {
  return previous.global_batch == request.job.train.global_batch &&
         std::find(grains.begin(), grains.end(), previous.grain) != grains.end() &&
         std::all_of(previous.replicas.begin(), previous.replicas.end(),
                     [](const ReplicaPlan& replica) {
                       return replica.stages.size() == 1 && replica.stages[0].ranks.size() == 1;
                     });
}

std::vector<bool> still_there(const Plan& previous, const Candidates& candidates) {
  std::unordered_set<std::string> devices;
  for (const RankPlacement& rank : previous.ranks) devices.insert(rank.device);
  std::vector<bool> used;
  for (const Candidate& candidate : candidates.devices)
    used.push_back(devices.contains(candidate.spec->id));
  return used;
}

/// Who shortens the step most; -1: nobody.
int best_instead(const GrainSearch& search, const Deal& deal) {
  OneMoreDevice one_more(search, deal);
  int best = -1;
  double least = deal.step_seconds;
  for (size_t i = 0; i < deal.grains.size(); ++i) {
    if (deal.grains[i] > 0 || !search.tables().of()[i]) continue;
    const double with = one_more.step_seconds_with(i);
    if (with < least) least = with, best = static_cast<int>(i);
  }
  return best;
}

Deal deal_to_those_left(const GrainSearch& search, const Candidates& candidates,
                        std::vector<bool> used) {
  const auto count = static_cast<int>(std::count(used.begin(), used.end(), true));
  if (count < candidates.least_devices || count > candidates.most_devices) return {};
  Deal deal = search.run_with_all(used).deal;
  for (int i = 0; i < kMostInstead && deal.step_seconds < kNever; ++i) {
    if (deal.devices() >= std::min(candidates.most_devices, search.cut().grains())) break;
    const int instead = best_instead(search, deal);
    if (instead < 0) break;
    used[static_cast<size_t>(instead)] = true;
    deal = search.run_with_all(used).deal;
  }
  return deal;
}

std::string space_again(const FoundDeal& found, size_t candidates) {
  return "data parallel: any of " + std::to_string(candidates) +
         " devices, any whole grains each, any micro-batch that fits; grain " +
         grains_tried(found.tried) + "; from the previous plan, until within 1 % of the bound";
}

}  // namespace

std::optional<FoundDeal> deal_again(const PlanRequest& request, const Candidates& candidates,
                                    const ReductionTable& reduction) {
  if (request.previous == nullptr) return std::nullopt;
  const Plan& previous = *request.previous;
  const std::vector<int> grains = candidate_grains(request, candidates);
  if (!is_of_use(previous, request, grains)) return std::nullopt;
  FoundDeal left, other;
  left.search = std::make_unique<GrainSearch>(request, candidates, reduction, previous.grain);
  left.deal = deal_to_those_left(*left.search, candidates, still_there(previous, candidates));
  double bound = kNever;
  int64_t nodes = 0;
  for (const int grain : grains) {
    auto search = std::make_unique<GrainSearch>(request, candidates, reduction, grain);
    const double quickest = std::min(left.deal.step_seconds, other.deal.step_seconds);
    DealResult result = search->run(quickest, kEnoughAgain);
    nodes += result.nodes;
    bound = std::min(bound, result.lower_bound);
    left.tried.push_back({grain, result.deal.step_seconds});
    if (result.deal.step_seconds >= quickest) continue;
    other.deal = std::move(result.deal);
    other.search = std::move(search);
  }
  const double enough = bound * (1 + kEnoughAgain);
  other.tried = left.tried;
  FoundDeal& found = left.deal.step_seconds <= enough ? left : other;
  if (!(found.deal.step_seconds <= enough) || found.deal.step_seconds == kNever)
    return std::nullopt;
  found.record = {.space = space_again(found, candidates.devices.size()),
                  .step_seconds = found.deal.step_seconds,
                  .lower_bound_step_seconds = bound,
                  .nodes = nodes,
                  .rejected = {}};
  return std::move(found);
}

}  // namespace motley
