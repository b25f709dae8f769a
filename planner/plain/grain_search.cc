#include "planner/plain/grain_search.h"

#include <algorithm>
#include <set>
#include <utility>

#include "planner/costs/sums_beside.h"

namespace motley {
namespace {

std::vector<DeviceSizes> sizes_of_all(const PlanRequest& request, const Candidates& candidates,
                                      int grain, bool beside) {
  std::vector<DeviceSizes> sizes;
  for (const Candidate& candidate : candidates.devices)
    sizes.push_back(sizes_of(request, *candidate.profile, grain, beside));
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
  std::vector<bool> left_out;               ///< candidates besides those of other hosts
  int low = 1, high = 0;                    ///< devices
  std::vector<std::pair<int, int>> floors;  ///< pairs of hosts that are both used
  bool beside = false;                      ///< sums are part of sections: of several hosts only
  double bound = kNever;
  Deal deal;  ///< the quickest under the bound's reduction, by candidate
};

GrainSearch::GrainSearch(const PlanRequest& request, const Candidates& candidates,
                         const ReductionTable& reduction, int grain, size_t few)
    : candidates_(candidates),
      reduction_(reduction),
      cut_{request.job.train.global_batch, grain},
      beside_(plans_with_sums_beside(request) == PlansBeside::kAll),
      few_(few),
      tables_(sizes_of_all(request, candidates, grain, beside_), cut_,
              beside_ ? sums_of_whole(request, 0) : SumsBeside{}) {}

DealProblem GrainSearch::problem_over(const std::vector<bool>& candidates,
                                      std::vector<size_t>* indices, double sums) const {
  const auto& tables = tables_.of(sums);
  DealProblem problem;
  problem.grains = cut_.grains();
  problem.has_short = cut_.missing() > 0;
  indices->clear();
  for (size_t i = 0; i < tables.size(); ++i) {
    if (!candidates[i] || !tables[i]) continue;
    problem.devices.push_back(tables[i].get());
    indices->push_back(i);
  }
  problem.reduction.assign(problem.devices.size() + 1, 0);
  problem.least_devices = candidates_.least_devices;
  problem.most_devices = candidates_.most_devices;
  problem.section_times = &tables_.section_times(sums);
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

GrainSearch::Pool GrainSearch::all_pool() const {
  Pool pool;
  pool.hosts.assign(static_cast<size_t>(reduction_.host_count()), true);
  pool.left_out.assign(tables_.of().size(), false);
  pool.low = candidates_.least_devices;
  pool.high = candidates_.most_devices;
  return pool;
}

GrainSearch::Pool GrainSearch::solve(Pool pool) {
  std::vector<bool> candidates;
  for (size_t i = 0; i < tables_.of().size(); ++i)
    candidates.push_back(!pool.left_out[i] &&
                         pool.hosts[static_cast<size_t>(reduction_.host_of(i))]);
  pool.deal = {};
  std::vector<size_t> indices;
  DealResult solved;
  if (pool.beside) {
    solved = solve_beside(pool, candidates, &indices);
  } else {
    DealProblem problem = problem_over(candidates, &indices);
    problem.least_devices = pool.low;
    problem.most_devices = pool.high;
    problem.least_reduction = [&](int low, int high) { return relaxed_reduction(pool, low, high); };
    problem.cutoff = std::min(cutoff_, result_.deal.step_seconds);
    solved = best_deal(problem);
  }
  result_.nodes += solved.nodes;
  pool.bound = solved.lower_bound;
  if (solved.deal.step_seconds < kNever) {
    pool.deal = by_candidate(std::move(solved.deal), indices, tables_.of().size());
  }
  return pool;
}

/// Sums of a range of numbers of devices take no less than the least of them: where a deal's own
/// take longer, its number and those on both sides are looked at by themselves.
DealResult GrainSearch::solve_beside(const Pool& pool, const std::vector<bool>& candidates,
                                     std::vector<size_t>* indices) {
  DealResult best;
  std::vector<std::pair<int, int>> open{{pool.low, pool.high}};
  while (!open.empty()) {
    const auto [low, high] = open.back();
    open.pop_back();
    if (low > high) continue;
    const double sums = relaxed_reduction(pool, low, high);
    if (sums == kNever) continue;
    DealProblem problem = problem_over(candidates, indices, sums);
    problem.least_devices = low;
    problem.most_devices = high;
    problem.cutoff = std::min({cutoff_, result_.deal.step_seconds, best.deal.step_seconds});
    DealResult solved = best_deal(problem);
    best.nodes += solved.nodes;
    const int devices = solved.deal.devices();
    if (solved.deal.step_seconds < kNever && low < high &&
        relaxed_reduction(pool, devices, devices) > sums) {
      const int middle = devices + (high - devices + 1) / 2;
      open.insert(
          open.end(),
          {{low, devices - 1}, {middle + 1, high}, {devices + 1, middle}, {devices, devices}});
      continue;
    }
    best.lower_bound = std::min(best.lower_bound, solved.lower_bound);
    if (solved.deal.step_seconds < best.deal.step_seconds) best.deal = std::move(solved.deal);
  }
  return best;
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

/// Of exactly these candidates, which are on these hosts.
DealProblem GrainSearch::problem_of_all(const std::vector<bool>& used,
                                        const std::vector<bool>& hosts, double reduction,
                                        std::vector<size_t>* indices) const {
  const bool beside = beside_ && std::count(hosts.begin(), hosts.end(), true) > 1;
  DealProblem problem = problem_over(used, indices, beside ? reduction : 0);
  if (!beside) problem.reduction.back() = reduction;
  problem.least_devices = problem.most_devices = static_cast<int>(indices->size());
  return problem;
}

/// Considers the pool's deal with its real reduction, which is returned.
double GrainSearch::price(const Pool& pool) {
  std::vector<bool> used;
  for (const int grains : pool.deal.grains) used.push_back(grains > 0);
  const int ranks = pool.deal.devices();
  const std::vector<bool> hosts = hosts_of(pool.deal);
  const double reduction = reduction_.seconds(ranks, hosts);
  std::vector<size_t> indices;
  const DealProblem problem = problem_of_all(used, hosts, reduction, &indices);
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
  return reduction;
}

/// Where a pool's deal has a longer reduction than the bound assumed, splits the pool by its
/// slowest pair of hosts: both are used, or one of them is not.
void GrainSearch::branch(const Pool& pool, double reduction, std::vector<Pool>* open) {
  const int ranks = pool.deal.devices();
  const std::vector<bool> hosts = hosts_of(pool.deal);
  if (pool.beside && ranks > 1 && std::count(hosts.begin(), hosts.end(), true) == 1)
    return branch_from_one_host(pool, open);
  if (reduction <= relaxed_reduction(pool, ranks, ranks)) return;
  const std::pair<int, int> slowest = reduction_.slowest_pair(ranks, hosts);
  Pool both = pool;
  both.floors.push_back(slowest);
  open->push_back(solve(std::move(both)));
  for (const int host : {slowest.first, slowest.second}) {
    Pool rest = pool;
    rest.hosts[static_cast<size_t>(host)] = false;
    open->push_back(solve(std::move(rest)));
    if (slowest.first == slowest.second) break;
  }
}

/// Sums within a host are no part of sections, and what is on one alone has a pool of its own.
/// Other deals have another number of devices, or fewer of some kind that this one has.
void GrainSearch::branch_from_one_host(const Pool& pool, std::vector<Pool>* open) {
  const int ranks = pool.deal.devices();
  for (const auto& [low, high] :
       {std::pair(pool.low, ranks - 1), std::pair(ranks + 1, pool.high)}) {
    Pool other = pool;
    other.low = low;
    other.high = high;
    if (low <= high) open->push_back(solve(std::move(other)));
  }
  const auto& tables = tables_.of();
  std::set<const GrainTable*> seen;
  for (size_t one = 0; one < pool.deal.grains.size(); ++one) {
    if (pool.deal.grains[one] == 0 || !seen.insert(tables[one].get()).second) continue;
    const auto is_alike = [&](size_t i) {
      return tables[i] == tables[one] && reduction_.host_of(i) == reduction_.host_of(one);
    };
    int count = 0, kept = 0;
    for (size_t i = one; i < tables.size(); ++i) count += pool.deal.grains[i] > 0 && is_alike(i);
    Pool fewer = pool;
    fewer.low = fewer.high = ranks;
    for (size_t i = 0; i < tables.size(); ++i)
      if (!fewer.left_out[i] && is_alike(i)) fewer.left_out[i] = ++kept >= count;
    open->push_back(solve(std::move(fewer)));
  }
}

/// All hosts, and where sums of several go on beside computing each by itself.
std::vector<GrainSearch::Pool> GrainSearch::first_pools() {
  std::vector<Pool> pools;
  for (size_t host = 0; beside_ && host < static_cast<size_t>(reduction_.host_count()); ++host) {
    Pool alone = all_pool();
    alone.hosts.assign(alone.hosts.size(), false);
    alone.hosts[host] = true;
    pools.push_back(solve(std::move(alone)));
  }
  Pool all = all_pool();
  all.beside = beside_;
  pools.push_back(solve(std::move(all)));
  return pools;
}

DealResult GrainSearch::run(double cutoff, double enough) {
  cutoff_ = cutoff;
  enough_ = enough;
  result_ = {};
  unexplored_ = kNever;
  while (true) {
    const bool few = tables_.of().size() <= few_;
    if (beside_ && few) {
      search_sets();
    } else {
      search_pools();
    }
    // Longer tables could only add deals that take longer than theirs begin at.
    const double wanted = std::min(result_.deal.step_seconds, cutoff_);
    if (wanted < tables_.beyond() || tables_.beyond() == kNever) return result_;
    tables_.lengthen();
    unexplored_ = kNever;
    result_ = {.deal = {}, .lower_bound = kNever, .nodes = result_.nodes};
  }
}

void GrainSearch::search_pools() {
  std::vector<Pool> open = first_pools();
  for (int pools = 0; !open.empty(); ++pools) {
    const auto first = std::min_element(
        open.begin(), open.end(), [](const Pool& a, const Pool& b) { return a.bound < b.bound; });
    const Pool pool = std::move(*first);
    open.erase(first);
    if (pool.bound >= result_.deal.step_seconds) break;
    if (pools >= most_pools(candidates_.devices.size())) {
      unexplored_ = std::min(unexplored_, pool.bound);
      break;
    }
    if (!pool.deal.grains.empty()) {
      const double reduction = price(pool);
      const double quickest = std::min(result_.deal.step_seconds, cutoff_);
      if (enough_ > 0 && quickest <= pool.bound * (1 + enough_)) {
        unexplored_ = std::min(unexplored_, pool.bound);
        break;
      }
      branch(pool, reduction, &open);
    }
    // A pool whose bound is not met by its own deal (its enumeration was too large) stays open.
    if (pool.bound < pool.deal.step_seconds) unexplored_ = std::min(unexplored_, pool.bound);
  }
  result_.lower_bound = std::min({result_.deal.step_seconds, unexplored_, cutoff_});
}

/// Of few devices each with some of the others.
void GrainSearch::search_sets() {
  const size_t devices = tables_.of().size();
  for (unsigned set = 1; set < 1U << devices; ++set) {
    std::vector<bool> used;
    for (size_t i = 0; i < devices; ++i)
      used.push_back((set >> i & 1U) != 0 && tables_.of()[i] != nullptr);
    const auto count = static_cast<int>(std::count(used.begin(), used.end(), true));
    if (count < candidates_.least_devices || count > candidates_.most_devices) continue;
    DealResult result = run_with_all(used, std::min(cutoff_, result_.deal.step_seconds));
    result_.nodes += result.nodes;
    unexplored_ = std::min(unexplored_, result.lower_bound);
    if (!result.deal.grains.empty()) keep(result.deal);
  }
  result_.lower_bound = std::min({result_.deal.step_seconds, unexplored_, cutoff_});
}

DealResult GrainSearch::run_with_all(const std::vector<bool>& used, double cutoff) const {
  std::vector<bool> hosts(static_cast<size_t>(reduction_.host_count()), false);
  int ranks = 0;
  for (size_t i = 0; i < used.size(); ++i) {
    if (!used[i] || !tables_.of()[i]) continue;
    hosts[static_cast<size_t>(reduction_.host_of(i))] = true;
    ++ranks;
  }
  std::vector<size_t> indices;
  DealProblem problem = problem_of_all(used, hosts, reduction_.seconds(ranks, hosts), &indices);
  problem.cutoff = cutoff;
  DealResult result = best_deal(problem);
  if (result.deal.step_seconds < kNever) {
    result.deal = by_candidate(std::move(result.deal), indices, tables_.of().size());
  }
  return result;
}

}  // namespace motley
