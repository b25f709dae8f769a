#include "planner/state/state_placement.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "planner/costs/cost_model.h"
#include "planner/costs/links.h"
#include "planner/costs/slice_traffic.h"
#include "planner/plain/device_index.h"
#include "planner/state/owner_deal.h"

namespace motley {
namespace {

/// Deals that are counted until one fits.
constexpr int kMostDeals = 4;

/// What owning costs a rank of memory: on a straight line through two counts.
struct OwningCost {
  double fixed = 0;
  double per_element = 0;
};

class StatePlacer {
 public:
  StatePlacer(const PlanRequest& request, const CountMemory& count, const Plan& plan,
              const StateWays& ways)
      : request_(request),
        count_(count),
        ways_(ways),
        plan_(plan),
        index_(request.fleet, request.profile) {
    plan_.prediction = {};  // with all state everywhere it may not fit
    plan_.shard_optimizer = ways.shard;
    plan_.owners = even_ownership(plan_, request.job.model);
    for (RankPlacement& rank : plan_.ranks) rank.host_optimizer = false;
  }

  Result<PlacedState> run() {
    MOTLEY_TRY(PlacedState placed, ways_.shard ? deal_owners() : counted());
    if (ways_.shard && ways_.host && !placed.fits) {  // no choice of some ranks helps then
      MOTLEY_TRY(PlacedState all, with_all_in_host());
      if (!devices_fit(all.counted)) return all;
    }
    while (ways_.host && !placed.fits) {
      MOTLEY_TRY(std::optional<PlacedState> other, with_more_in_host(placed));
      if (!other) break;
      placed = *std::move(other);
    }
    return placed;
  }

 private:
  size_t ranks() const { return plan_.ranks.size(); }
  const DeviceProfile& device(size_t rank) const {
    return *index_.profile(plan_.ranks[rank].device);
  }
  /// Whether its host has memory that is not also the device's.
  bool has_own_memory(size_t rank) const {
    const DeviceSpec* spec = index_.spec(plan_.ranks[rank].device);
    return spec != nullptr && spec->kind == DeviceKind::kCuda;
  }
  double usable(size_t rank) const {
    return static_cast<double>(usable_memory(device(rank), request_.memory_headroom).value());
  }
  bool fits(size_t rank, const std::vector<RankMemory>& counted) const {
    return counted[rank].total <= usable_memory(device(rank), request_.memory_headroom);
  }

  /// Of each host of which it is known; a rank whose host has too little is taken to need too much,
  /// too.
  bool hosts_fit(const std::vector<RankMemory>& counted) const {
    std::map<std::string, std::pair<double, double>> hosts;  // needed, usable
    for (size_t rank = 0; rank < ranks(); ++rank) {
      auto& [needed, there] = hosts[plan_.ranks[rank].host];
      needed += static_cast<double>(
          (has_own_memory(rank) ? counted[rank].host : counted[rank].total).value());
      there = std::max(there, static_cast<double>(device(rank).host_memory.value()));
    }
    return std::all_of(hosts.begin(), hosts.end(), [&](const auto& host) {
      const auto& [needed, there] = host.second;
      return there == 0 || needed <= there * (1 - request_.memory_headroom);
    });
  }

  bool devices_fit(const std::vector<RankMemory>& counted) const {
    for (size_t rank = 0; rank < ranks(); ++rank)
      if (!fits(rank, counted)) return false;
    return true;
  }

  Result<PlacedState> counted() {
    PlacedState placed{.plan = plan_, .counted = {}};
    MOTLEY_TRY(placed.counted, count_(plan_));
    placed.fits = hosts_fit(placed.counted) && devices_fit(placed.counted);
    return placed;
  }

  // --- owners

  OwnerProblem problem() const {
    OwnerProblem problem;
    problem.groups = held_alike(plan_, request_.job.model);
    problem.most.assign(ranks(), kUnlimited);
    const auto whole = static_cast<double>(parameter_count(request_.job.model));
    for (size_t rank = 0; rank < ranks(); ++rank)
      problem.update.push_back(
          whole_update_seconds(device(rank), plan_.ranks[rank].host_optimizer) / whole);
    const auto reduction = [&](const LinkCompression& compression) {
      return ReductionModel(request_.profile, gradient_bytes(request_.job),
                            shortened_links(compression, request_.job.model), plan_.sync);
    };
    // Weights come back as they are.
    const ReductionModel gradients = reduction(plan_.compression), weights = reduction({});
    std::vector<double> held(ranks(), 0.0);
    problem.exchange.assign(ranks(), 0.0);  // on average of what it holds
    for (const HeldAlike& group : problem.groups) {
      const auto elements = static_cast<double>(group.elements);
      const double seconds = (exchange_seconds(gradients, plan_, group.holders, whole) +
                              exchange_seconds(weights, plan_, group.holders, whole)) /
                             2;
      for (const Rank rank : group.holders) {
        problem.exchange[static_cast<size_t>(rank.value())] += elements * seconds;
        held[static_cast<size_t>(rank.value())] += elements;
      }
    }
    for (size_t rank = 0; rank < ranks(); ++rank)
      if (held[rank] > 0) problem.exchange[rank] /= held[rank];
    return problem;
  }

  Result<PlacedState> deal_by(const std::vector<OwnerShares>& shares) {
    plan_.owners = uneven_ownership(plan_, request_.job.model, shares);
    return counted();
  }

  std::vector<double> owned(const Plan& plan) const {
    std::vector<double> elements(ranks(), 0.0);
    for (const Ownership& owner : plan.owners)
      elements[static_cast<size_t>(owner.owner.value())] +=
          static_cast<double>(owner.slice.elements());
    return elements;
  }

  /// First as is quickest; where that is too much for some, what owning costs is learnt from
  /// another deal. Where none fits, evenly: of devices that are alike none needs more.
  Result<PlacedState> deal_owners() {
    const OwnerProblem problem = this->problem();
    MOTLEY_TRY(const PlacedState quickest, deal_by(best_owners(problem).shares));
    if (quickest.fits) return or_even(quickest);
    MOTLEY_TRY(const PlacedState other, deal_by(unlike_shares(problem, quickest.plan)));
    MOTLEY_TRY(const std::optional<PlacedState> within, best_within(quickest, problem, other));
    if (within) return *within;
    if (other.fits) return other;
    plan_.owners = even_ownership(plan_, request_.job.model);
    return counted();
  }

  /// The deal knows what each rank exchanges, not what hosts do.
  Result<PlacedState> or_even(const PlacedState& dealt) {
    Plan known = dealt.plan, even = dealt.plan;
    even.owners = even_ownership(even, request_.job.model);
    known.prediction = even.prediction = {};
    MOTLEY_TRY_VOID(predict_step(request_, &known));
    MOTLEY_TRY_VOID(predict_step(request_, &even));
    if (even.prediction.step_seconds >= known.prediction.step_seconds) return dealt;
    plan_.owners = std::move(even.owners);
    MOTLEY_TRY(PlacedState other, counted());
    return other.fits ? std::move(other) : dealt;
  }

  /// Of every rank that could own more or less than in the plan it does.
  std::vector<OwnerShares> unlike_shares(const OwnerProblem& problem, const Plan& plan) const {
    const std::vector<double> before = owned(plan);
    std::vector<OwnerShares> shares;
    for (const HeldAlike& group : problem.groups) {
      OwnerShares& own = shares.emplace_back();
      const double even =
          static_cast<double>(group.elements) / static_cast<double>(group.holders.size());
      for (size_t i = 0; i < group.holders.size(); ++i)
        own.push_back(before[static_cast<size_t>(group.holders[i].value())] / 2 +
                      even * (i % 2 == 0 ? 0.4 : 0.2));
    }
    return shares;
  }

  /// Deals within the memory that two counts leave for owning: as is quickest, else so that all
  /// have as much of it left, in proportion.
  Result<std::optional<PlacedState>> best_within(const PlacedState& one, OwnerProblem problem,
                                                 const PlacedState& other) {
    const std::vector<OwningCost> costs = owning_costs(one, other);
    for (size_t rank = 0; rank < ranks(); ++rank)
      problem.most[rank] = room(rank, costs[rank].fixed, costs[rank].per_element);
    MOTLEY_TRY(std::optional<PlacedState> quickest, first_that_fits(problem, costs));
    if (quickest) return quickest;
    problem.update.assign(ranks(), 0.0);
    problem.exchange.assign(ranks(), 0.0);
    return first_that_fits(problem, costs);
  }

  Result<std::optional<PlacedState>> first_that_fits(OwnerProblem problem,
                                                     const std::vector<OwningCost>& costs) {
    for (int deals = 0; deals < kMostDeals; ++deals) {
      const OwnerDeal deal = best_owners(problem);
      if (!deal.possible()) break;
      MOTLEY_TRY(PlacedState placed, deal_by(deal.shares));
      if (placed.fits) return placed;
      // Rows and chunks: a little less than was thought.
      const std::vector<double> own = owned(placed.plan);
      for (size_t rank = 0; rank < ranks(); ++rank) {
        const auto needs = static_cast<double>(placed.counted[rank].total.value());
        if (needs <= usable(rank) || costs[rank].per_element <= 0) continue;
        problem.most[rank] = std::min(problem.most[rank], own[rank]) -
                             (needs - usable(rank)) / costs[rank].per_element;
      }
    }
    return std::nullopt;
  }

  double room(size_t rank, double fixed, double per_element) const {
    const double left = usable(rank) - fixed;
    if (left <= 0) return 0;
    return per_element > 0 ? left / per_element : kUnlimited;
  }

  /// A rank that owns as much in both costs what it did.
  std::vector<OwningCost> owning_costs(const PlacedState& one, const PlacedState& other) const {
    const std::vector<double> first = owned(one.plan), second = owned(other.plan);
    std::vector<OwningCost> costs;
    for (size_t rank = 0; rank < ranks(); ++rank) {
      const auto bytes = static_cast<double>(one.counted[rank].total.value());
      const auto others = static_cast<double>(other.counted[rank].total.value());
      const double more = second[rank] - first[rank];
      const double per_element = more == 0 ? 0 : std::max(0.0, (others - bytes) / more);
      costs.push_back({bytes - per_element * first[rank], per_element});
    }
    return costs;
  }

  // --- host memory

  Result<PlacedState> with_all_in_host() {
    const std::vector<RankPlacement> before = plan_.ranks;
    for (size_t rank = 0; rank < ranks(); ++rank)
      plan_.ranks[rank].host_optimizer = has_own_memory(rank);
    MOTLEY_TRY(PlacedState all, deal_owners());
    plan_.ranks = before;
    return all;
  }

  /// Not sharded, the state of all whose devices are too small lies in host memory. Sharded, one
  /// rank more: of those with which it fits the one that is quickest, else the one of the most
  /// memory that is missing.
  Result<std::optional<PlacedState>> with_more_in_host(const PlacedState& placed) {
    std::vector<size_t> candidates;
    for (size_t rank = 0; rank < ranks(); ++rank)
      if (has_own_memory(rank) && !plan_.ranks[rank].host_optimizer) candidates.push_back(rank);
    if (!ways_.shard)
      std::erase_if(candidates, [&](size_t rank) { return fits(rank, placed.counted); });
    if (candidates.empty()) return std::nullopt;
    if (!ways_.shard) {
      for (const size_t rank : candidates) plan_.ranks[rank].host_optimizer = true;
      MOTLEY_TRY(PlacedState other, counted());
      return other;
    }
    return one_more_in_host(candidates);
  }

  Result<std::optional<PlacedState>> one_more_in_host(const std::vector<size_t>& candidates) {
    std::optional<PlacedState> best;
    std::pair<double, double> least{kUnlimited, kUnlimited};  // bytes missing, seconds
    size_t chosen = candidates.front();
    for (const size_t rank : candidates) {
      plan_.ranks[rank].host_optimizer = true;
      MOTLEY_TRY(PlacedState other, deal_owners());
      plan_.ranks[rank].host_optimizer = false;
      double missing = other.fits ? 0 : 1;
      for (size_t each = 0; each < ranks(); ++each)
        missing +=
            std::max(0.0, static_cast<double>(other.counted[each].total.value()) - usable(each));
      MOTLEY_TRY(const Plan priced, plan_of(request_, other));
      const std::pair score{missing, priced.prediction.step_seconds};
      if (best && score >= least) continue;
      least = score;
      chosen = rank;
      best = std::move(other);
    }
    plan_.ranks[chosen].host_optimizer = true;
    return best;
  }

  const PlanRequest& request_;
  const CountMemory& count_;
  StateWays ways_;
  Plan plan_;
  DeviceIndex index_;
};

}  // namespace

std::string state_words(const StateWays& ways) {
  if (!ways.shard && !ways.host) return "";
  return std::string("optimizer state ") + (ways.shard ? "sharded" : "") +
         (ways.shard && ways.host ? " and " : "") + (ways.host ? "in host memory" : "");
}

Result<PlacedState> place_state(const PlanRequest& request, const CountMemory& count,
                                const Plan& plan, const StateWays& ways) {
  return StatePlacer(request, count, plan, ways).run();
}

Result<Plan> plan_of(const PlanRequest& request, PlacedState placed) {
  Plan plan = std::move(placed.plan);
  plan.prediction = {};
  MOTLEY_TRY_VOID(predict(request, &plan, placed.counted));
  plan.search.step_seconds = plan.prediction.step_seconds;
  plan.id = plan_id(plan);
  return plan;
}

double least_update_seconds(const std::vector<const DeviceProfile*>& devices) {
  double rate = 0;
  for (const DeviceProfile* device : devices) {
    const double least =
        std::min(whole_update_seconds(*device, false), whole_update_seconds(*device, true));
    if (least <= 0) return 0;
    rate += 1 / least;
  }
  return rate > 0 ? 1 / rate : 0;
}

}  // namespace motley
