#include "planner/plain/grain_search.h"

#include <algorithm>
#include <utility>

namespace motley {
namespace {

std::vector<DeviceSizes> sizes_of(const Candidates& candidates, const MicroBatchRule& rule) {
  std::vector<DeviceSizes> sizes;
  for (const Candidate& candidate : candidates.devices)
    sizes.push_back({candidate.profile, micro_batch_sizes(*candidate.profile, rule)});
  return sizes;
}

/// Pools to look at: the larger the fleet, the longer each takes.
int most_pools(size_t devices) {
  constexpr size_t kMost = 256, kLeast = 8, kDevicesInTime = 1024;
  return static_cast<int>(
      std::max(kLeast, kMost * kDevicesInTime / std::max(kDevicesInTime, devices)));
}

}  // namespace

/// Deals that use only some hosts, and of these perhaps a certain pair: a node of the branch and
/// bound. Its reduction is at least that of the pair, and of the quickest hosts with enough
/// devices.
struct GrainSearch::Pool {
  std::vector<bool> hosts;
  std::vector<std::pair<int, int>> floors;  ///< pairs of hosts that are both used
  double bound = kNever;
  Deal deal;  ///< the quickest under the bound's reduction, by candidate
};

GrainSearch::GrainSearch(const PlanRequest& request, const Candidates& candidates,
                         const ReductionTable& reduction, int grain)
    : candidates_(candidates),
      reduction_(reduction),
      cut_{request.job.train.global_batch, grain},
      tables_(sizes_of(candidates, micro_batch_rule(request, grain)), cut_) {}

DealProblem GrainSearch::problem_over(const std::vector<bool>& candidates,
                                      std::vector<size_t>* indices) const {
  DealProblem problem;
  problem.grains = cut_.grains();
  problem.has_short = cut_.missing() > 0;
  for (size_t i = 0; i < tables_.of().size(); ++i) {
    if (!candidates[i] || !tables_.of()[i]) continue;
    problem.devices.push_back(tables_.of()[i].get());
    indices->push_back(i);
  }
  problem.reduction.assign(problem.devices.size() + 1, 0);
  problem.least_devices = candidates_.least_devices;
  problem.most_devices = candidates_.most_devices;
  problem.section_times = &tables_.section_times();
  return problem;
}

namespace {

/// Back from positions in a problem to candidates.
Deal by_candidate(Deal deal, const std::vector<size_t>& indices, size_t candidates) {
  std::vector<int> grains(candidates, 0);
  for (size_t i = 0; i < deal.grains.size(); ++i) grains[indices[i]] = deal.grains[i];
  if (deal.short_device >= 0) {
    deal.short_device = static_cast<int>(indices[static_cast<size_t>(deal.short_device)]);
  }
  deal.grains = std::move(grains);
  return deal;
}

}  // namespace

double GrainSearch::relaxed_reduction(const Pool& pool, int low, int high) const {
  if (low < 2) return 0;
  double floor = 0;
  for (const auto& [a, b] : pool.floors) {
    floor =
        std::max({floor, reduction_.least_pair_seconds(low, high, a, b),
                  reduction_.least_seconds(low, high, a), reduction_.least_seconds(low, high, b)});
  }
  return pool.floors.empty() ? reduction_.least_seconds(low, high, pool.hosts) : floor;
}

GrainSearch::Pool GrainSearch::solve(std::vector<bool> hosts,
                                     std::vector<std::pair<int, int>> floors) {
  Pool pool{std::move(hosts), std::move(floors), kNever, {}};
  std::vector<bool> candidates;
  for (size_t i = 0; i < tables_.of().size(); ++i) {
    candidates.push_back(pool.hosts[static_cast<size_t>(reduction_.host_of(i))]);
  }
  std::vector<size_t> indices;
  DealProblem problem = problem_over(candidates, &indices);
  problem.least_reduction = [&](int low, int high) { return relaxed_reduction(pool, low, high); };
  problem.cutoff = std::min(cutoff_, result_.deal.step_seconds);
  DealResult solved = best_deal(problem);
  result_.nodes += solved.nodes;
  pool.bound = solved.lower_bound;
  if (solved.deal.step_seconds < kNever) {
    pool.deal = by_candidate(std::move(solved.deal), indices, tables_.of().size());
  }
  return pool;
}

std::vector<bool> GrainSearch::hosts_of(const Deal& deal) const {
  std::vector<bool> hosts(static_cast<size_t>(reduction_.host_count()), false);
  for (size_t i = 0; i < deal.grains.size(); ++i) {
    if (deal.grains[i] > 0) hosts[static_cast<size_t>(reduction_.host_of(i))] = true;
  }
  return hosts;
}

void GrainSearch::keep(const Deal& deal) {
  const Deal& best = result_.deal;
  const bool improves = deal.step_seconds < best.step_seconds ||
                        (deal.step_seconds == best.step_seconds && deal.devices() < best.devices());
  if (improves) result_.deal = deal;
}

/// Considers the pool's deal with its real reduction, which is returned.
double GrainSearch::price(const Pool& pool) {
  std::vector<bool> used;
  for (const int grains : pool.deal.grains) used.push_back(grains > 0);
  std::vector<size_t> indices;
  DealProblem problem = problem_over(used, &indices);
  const int ranks = pool.deal.devices();
  const std::vector<bool> hosts = hosts_of(pool.deal);
  problem.reduction[static_cast<size_t>(ranks)] = reduction_.seconds(ranks, hosts);
  Deal compact;
  for (const size_t i : indices) {
    if (pool.deal.short_device == static_cast<int>(i)) {
      compact.short_device = static_cast<int>(compact.grains.size());
    }
    compact.grains.push_back(pool.deal.grains[i]);
  }
  Deal real = pool.deal;
  real.step_seconds = deal_seconds(problem, compact);
  keep(real);
  return problem.reduction[static_cast<size_t>(ranks)];
}

/// Where a pool's deal has a longer reduction than the bound assumed, splits the pool by its
/// slowest pair of hosts: both are used, or one of them is not.
void GrainSearch::branch(const Pool& pool, double reduction, std::vector<Pool>* open) {
  const int ranks = pool.deal.devices();
  if (reduction <= relaxed_reduction(pool, ranks, ranks)) return;
  const std::vector<bool> hosts = hosts_of(pool.deal);
  const std::pair<int, int> slowest = reduction_.slowest_pair(ranks, hosts);
  auto floors = pool.floors;
  floors.push_back(slowest);
  open->push_back(solve(pool.hosts, std::move(floors)));
  for (const int host : {slowest.first, slowest.second}) {
    std::vector<bool> rest = pool.hosts;
    rest[static_cast<size_t>(host)] = false;
    open->push_back(solve(std::move(rest), pool.floors));
    if (slowest.first == slowest.second) break;
  }
}

DealResult GrainSearch::run(double cutoff, double enough) {
  cutoff_ = cutoff;
  enough_ = enough;
  result_ = {};
  while (true) {
    search_pools();
    // Longer tables could only add deals that take longer than theirs begin at.
    const double wanted = std::min(result_.deal.step_seconds, cutoff_);
    if (wanted < tables_.beyond() || tables_.beyond() == kNever) return result_;
    tables_.lengthen();
    result_ = {.deal = {}, .lower_bound = kNever, .nodes = result_.nodes};
  }
}

void GrainSearch::search_pools() {
  std::vector<Pool> open;
  open.push_back(solve(std::vector<bool>(static_cast<size_t>(reduction_.host_count()), true), {}));
  double unexplored = kNever;
  for (int pools = 0; !open.empty(); ++pools) {
    const auto first = std::min_element(
        open.begin(), open.end(), [](const Pool& a, const Pool& b) { return a.bound < b.bound; });
    const Pool pool = std::move(*first);
    open.erase(first);
    if (pool.bound >= result_.deal.step_seconds) break;
    if (pools >= most_pools(candidates_.devices.size())) {
      unexplored = std::min(unexplored, pool.bound);
      break;
    }
    if (!pool.deal.grains.empty()) {
      const double reduction = price(pool);
      const double quickest = std::min(result_.deal.step_seconds, cutoff_);
      if (enough_ > 0 && quickest <= pool.bound * (1 + enough_)) {
        unexplored = std::min(unexplored, pool.bound);
        break;
      }
      branch(pool, reduction, &open);
    }
    // A pool whose bound is not met by its own deal (its enumeration was too large) stays open.
    if (pool.bound < pool.deal.step_seconds) unexplored = std::min(unexplored, pool.bound);
  }
  result_.lower_bound = std::min({result_.deal.step_seconds, unexplored, cutoff_});
}

DealResult GrainSearch::run_with_all(const std::vector<bool>& used) const {
  std::vector<size_t> indices;
  DealProblem problem = problem_over(used, &indices);
  const auto ranks = static_cast<int>(indices.size());
  std::vector<bool> hosts(static_cast<size_t>(reduction_.host_count()), false);
  for (const size_t i : indices) hosts[static_cast<size_t>(reduction_.host_of(i))] = true;
  problem.reduction.back() = reduction_.seconds(ranks, hosts);
  problem.least_devices = problem.most_devices = ranks;
  DealResult result = best_deal(problem);
  if (result.deal.step_seconds < kNever) {
    result.deal = by_candidate(std::move(result.deal), indices, tables_.of().size());
  }
  return result;
}

}  // namespace motley
