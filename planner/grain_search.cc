#include "planner/grain_search.h"

#include <algorithm>
#include <map>
#include <utility>

namespace motley {
namespace {

constexpr int kMostPools = 256;

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

ReductionTable::ReductionTable(const ReductionModel& model,
                               const std::vector<Candidate>& candidates) {
  std::map<std::string, int> numbers;
  for (const Candidate& candidate : candidates) {
    const auto [entry, is_new] =
        numbers.insert({candidate.spec->host, static_cast<int>(numbers.size())});
    if (is_new) hosts_.push_back(candidate.spec->host);
    host_of_.push_back(entry->second);
  }
  pairs_.resize(candidates.size() + 1);
  const size_t count = hosts_.size();
  for (size_t ranks = 0; ranks < pairs_.size(); ++ranks) {
    pairs_[ranks].assign(count * count, 0);
    if (ranks < 2) continue;
    for (size_t a = 0; a < count; ++a) {
      for (size_t b = 0; b < count; ++b) {
        pairs_[ranks][a * count + b] =
            model.pair_seconds(static_cast<int>(ranks), hosts_[a], hosts_[b]);
      }
    }
  }
  std::vector<int> sizes(count, 0);
  for (const int host : host_of_) ++sizes[static_cast<size_t>(host)];
  least_.resize(pairs_.size());
  for (size_t ranks = 0; ranks < pairs_.size(); ++ranks) {
    for (int host = 0; host < host_count(); ++host) {
      least_[ranks].push_back(find_least(static_cast<int>(ranks), host, sizes));
    }
  }
}

/// The other hosts that are nearest, until there are candidates enough: any choice of hosts has one
/// at least as far.
double ReductionTable::find_least(int ranks, int host, const std::vector<int>& sizes) const {
  std::vector<std::pair<double, int>> others;  // seconds at least, if it takes part; candidates
  for (int other = 0; other < host_count(); ++other) {
    if (other == host) continue;
    others.emplace_back(
        std::max(pair_seconds(ranks, host, other), pair_seconds(ranks, other, other)),
        sizes[static_cast<size_t>(other)]);
  }
  std::sort(others.begin(), others.end());
  double least = pair_seconds(ranks, host, host);
  int room = sizes[static_cast<size_t>(host)];
  for (auto next = others.begin(); room < ranks; ++next) {
    if (next == others.end()) return kNever;
    least = std::max(least, next->first);
    room += next->second;
  }
  return least;
}

double ReductionTable::least_seconds(int ranks, int host) const {
  return least_[static_cast<size_t>(ranks)][static_cast<size_t>(host)];
}

double ReductionTable::pair_seconds(int ranks, int a, int b) const {
  return pairs_[static_cast<size_t>(ranks)]
               [static_cast<size_t>(a) * hosts_.size() + static_cast<size_t>(b)];
}

double ReductionTable::seconds(int ranks, const std::vector<bool>& hosts) const {
  double slowest = 0;
  for (int a = 0; a < host_count(); ++a) {
    for (int b = a; b < host_count(); ++b) {
      const bool both = hosts[static_cast<size_t>(a)] && hosts[static_cast<size_t>(b)];
      if (both) slowest = std::max(slowest, pair_seconds(ranks, a, b));
    }
  }
  return slowest;
}

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
    : candidates_(candidates), reduction_(reduction), cut_{request.job.train.global_batch, grain} {
  const MicroBatchRule rule = micro_batch_rule(request, grain);
  std::map<std::vector<double>, std::shared_ptr<const GrainTable>> kinds;
  for (const Candidate& candidate : candidates.devices) {
    const std::vector<int> sizes = micro_batch_sizes(*candidate.profile, rule);
    tables_.emplace_back();
    if (sizes.empty()) continue;
    auto& kind = kinds[table_key(*candidate.profile, sizes)];
    if (!kind) {
      kind = std::make_shared<GrainTable>(make_grain_table(*candidate.profile, cut_, sizes));
    }
    tables_.back() = kind;
  }
  std::vector<const GrainTable*> tables;
  for (const auto& [key, kind] : kinds) tables.push_back(kind.get());
  section_times_ = section_times(tables);
}

DealProblem GrainSearch::problem_over(const std::vector<bool>& candidates,
                                      std::vector<size_t>* indices) const {
  DealProblem problem;
  problem.grains = cut_.grains();
  problem.has_short = cut_.missing() > 0;
  for (size_t i = 0; i < tables_.size(); ++i) {
    if (!candidates[i] || !tables_[i]) continue;
    problem.devices.push_back(tables_[i].get());
    indices->push_back(i);
  }
  problem.reduction.assign(problem.devices.size() + 1, 0);
  problem.least_devices = candidates_.least_devices;
  problem.most_devices = candidates_.most_devices;
  problem.section_times = &section_times_;
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

double GrainSearch::relaxed_reduction(const Pool& pool, int ranks) const {
  if (ranks < 2) return 0;
  double floor = 0;
  for (const auto& [a, b] : pool.floors) {
    floor = std::max({floor, reduction_.pair_seconds(ranks, a, b),
                      reduction_.least_seconds(ranks, a), reduction_.least_seconds(ranks, b)});
  }
  if (!pool.floors.empty()) return floor;
  double least = kNever;
  for (int host = 0; host < reduction_.host_count(); ++host) {
    if (!pool.hosts[static_cast<size_t>(host)]) continue;
    least = std::min(least, reduction_.least_seconds(ranks, host));
  }
  return least;
}

GrainSearch::Pool GrainSearch::solve(std::vector<bool> hosts,
                                     std::vector<std::pair<int, int>> floors) {
  Pool pool{std::move(hosts), std::move(floors), kNever, {}};
  std::vector<bool> candidates;
  for (size_t i = 0; i < tables_.size(); ++i) {
    candidates.push_back(pool.hosts[static_cast<size_t>(reduction_.host_of(i))]);
  }
  std::vector<size_t> indices;
  DealProblem problem = problem_over(candidates, &indices);
  for (size_t n = 0; n < problem.reduction.size(); ++n) {
    problem.reduction[n] = relaxed_reduction(pool, static_cast<int>(n));
  }
  problem.cutoff = std::min(cutoff_, result_.deal.step_seconds);
  DealResult solved = best_deal(problem);
  result_.nodes += solved.nodes;
  pool.bound = solved.lower_bound;
  if (solved.deal.step_seconds < kNever) {
    pool.deal = by_candidate(std::move(solved.deal), indices, tables_.size());
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

/// Prices the pool's deal with its real reduction; where that is more than the bound assumed,
/// splits the pool by its slowest pair of hosts: both are used, or one of them is not.
void GrainSearch::branch(const Pool& pool, std::vector<Pool>* open) {
  if (pool.deal.grains.empty()) return;
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
  if (problem.reduction[static_cast<size_t>(ranks)] <= relaxed_reduction(pool, ranks)) return;

  std::pair<int, int> slowest{-1, -1};
  double most = -1;
  for (int a = 0; a < reduction_.host_count(); ++a) {
    for (int b = a; b < reduction_.host_count(); ++b) {
      if (!hosts[static_cast<size_t>(a)] || !hosts[static_cast<size_t>(b)]) continue;
      const double seconds = reduction_.pair_seconds(ranks, a, b);
      if (seconds > most) most = seconds, slowest = {a, b};
    }
  }
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

DealResult GrainSearch::run(double cutoff) {
  cutoff_ = cutoff;
  result_ = {};
  std::vector<Pool> open;
  open.push_back(solve(std::vector<bool>(static_cast<size_t>(reduction_.host_count()), true), {}));
  double unexplored = kNever;
  for (int pools = 0; !open.empty(); ++pools) {
    const auto first = std::min_element(
        open.begin(), open.end(), [](const Pool& a, const Pool& b) { return a.bound < b.bound; });
    const Pool pool = std::move(*first);
    open.erase(first);
    if (pool.bound >= result_.deal.step_seconds) break;
    if (pools >= kMostPools) {
      unexplored = pool.bound;
      break;
    }
    branch(pool, &open);
    // A pool whose bound is not met by its own deal (its enumeration was too large) stays open.
    if (pool.bound < pool.deal.step_seconds) unexplored = std::min(unexplored, pool.bound);
  }
  result_.lower_bound = std::min({result_.deal.step_seconds, unexplored, cutoff_});
  return result_;
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
    result.deal = by_candidate(std::move(result.deal), indices, tables_.size());
  }
  return result;
}

}  // namespace motley
