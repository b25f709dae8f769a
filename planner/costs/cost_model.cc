#include "planner/costs/cost_model.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/check.h"

namespace motley {
namespace {

/// Share of the bytes that crosses a link in a ring of n ranks, up to a constant factor.
double ring_share(int ranks) { return static_cast<double>(ranks - 1) / ranks; }

/// The value at the measured number of ranks nearest to this one.
double nearest(const std::map<int, double>& points, int ranks) {
  const auto above = points.lower_bound(ranks);
  if (above == points.end()) return points.rbegin()->second;
  if (above == points.begin()) return above->second;
  const auto below = std::prev(above);
  return above->first - ranks <= ranks - below->first ? above->second : below->second;
}

/// Weights and two moments, each as large as the gradients.
constexpr double kStates = 3;

/// On the straight line between measured numbers of ranks; beyond them as a ring's share grows.
double interpolated(const std::map<int, double>& points, int ranks) {
  const auto above = points.lower_bound(ranks);
  if (above == points.begin() || above == points.end()) {
    const auto& [measured, seconds] = above == points.end() ? *points.rbegin() : *above;
    return measured == ranks ? seconds : seconds * ring_share(ranks) / ring_share(measured);
  }
  const auto below = std::prev(above);
  const double part =
      static_cast<double>(ranks - below->first) / static_cast<double>(above->first - below->first);
  return below->second + part * (above->second - below->second);
}

}  // namespace

Bytes usable_memory(const DeviceProfile& device, double headroom) {
  return Bytes(static_cast<int64_t>(
      std::floor(static_cast<double>(device.memory_limit.value()) * (1 - headroom))));
}

bool has_room(const PlanRequest& request, const RankPlacement& rank, const RankMemory& counted) {
  const DeviceProfile& device = *request.profile.find(rank.device);
  return counted.total <= usable_memory(device, request.memory_headroom);
}

bool have_room(const PlanRequest& request, const Plan& plan,
               const std::vector<RankMemory>& counted) {
  for (size_t rank = 0; rank < plan.ranks.size(); ++rank)
    if (!has_room(request, plan.ranks[rank], counted[rank])) return false;
  return true;
}

int micro_batch_of(int samples, const MicroBatchRule& rule) {
  const int grains = (samples + rule.grain - 1) / rule.grain;
  if (rule.exact) return samples == rule.grain ? samples : 0;
  return samples % rule.grain == 0 || samples == rule.global_batch ? grains * rule.grain : 0;
}

std::vector<int> micro_batch_sizes(const DeviceProfile& device, const MicroBatchRule& rule) {
  const Bytes usable = usable_memory(device, rule.headroom);
  std::vector<int> sizes;
  for (const MemoryPoint& point : device.memory) {
    const int size = micro_batch_of(point.micro_batch, rule);
    if (point.total() <= usable && size > (sizes.empty() ? 0 : sizes.back())) sizes.push_back(size);
  }
  return sizes;
}

double device_seconds(const DeviceProfile& device, int samples, int micro_batch) {
  const LayerCurve* curve = device.curve("model");
  MOTLEY_CHECK(curve != nullptr, device.device + " has no curve \"model\"");
  const int full = samples / micro_batch;
  const int rest = samples % micro_batch;
  return compute_seconds(device.step_overhead_seconds, full,
                         full > 0 ? curve->seconds_at(micro_batch) : 0,
                         rest > 0 ? curve->seconds_at(rest) : 0);
}

MicroBatchChoice best_micro_batch(const DeviceProfile& device, int samples,
                                  const std::vector<int>& sizes) {
  MicroBatchChoice best;
  for (const int size : sizes) {
    const double seconds = device_seconds(device, samples, size);
    if (best.micro_batch == 0 || seconds < best.seconds) best = {size, seconds};
    if (size >= samples) break;  // larger ones compute the same single micro-batch
  }
  return best;
}

ReductionModel::ReductionModel(const Profile& profile, Bytes gradient_bytes,
                               const ShortenedLinks& shortened, const SyncPlan& sync)
    : profile_(&profile), bytes_(gradient_bytes), shortened_(shortened), links_(profile.links) {
  if (sync.across > 1 && sync.groups.size() > 1) {
    steps_across_ = sync.across;
    for (size_t group = 0; group < sync.groups.size(); ++group)
      for (const std::string& host : sync.groups[group]) group_[host] = static_cast<int>(group);
  }
  slow_links_ = slowest_of(profile.links, shortened_.below_bytes_per_second);
  for (const ReductionPoint& point : profile.reductions) {
    if (point.ranks < 2) continue;
    if (point.hosts.empty()) {
      anywhere_[point.ranks] = point.seconds;
    } else if (point.hosts.size() == 1) {
      within_[point.hosts[0]][point.ranks] = point.seconds;
    } else {
      across_[point.ranks] = point.seconds;
      calibrate(point);
    }
  }
}

void ReductionModel::calibrate(const ReductionPoint& point) {
  const auto hosts = static_cast<int>(point.hosts.size());
  double formula = 0, of_hosts = 0;
  for (size_t i = 0; i < point.hosts.size(); ++i) {
    for (size_t j = i + 1; j < point.hosts.size(); ++j) {
      if (const LinkProfile* between = link(point.hosts[i], point.hosts[j])) {
        formula = std::max(formula, ring_seconds(point.ranks, over(*between), false));
        of_hosts = std::max(of_hosts, ring_seconds(hosts, over(*between), false));
      }
    }
  }
  if (formula > 0) calibration_[point.ranks] = point.seconds / formula;
  if (of_hosts > 0) host_calibration_[hosts] = point.seconds / of_hosts;
}

const LinkProfile* ReductionModel::link(const std::string& a, const std::string& b) const {
  return links_.between(links_.number(a), links_.number(b));
}

ReductionModel::HostPair ReductionModel::over(const LinkProfile& link) const {
  HostPair pair;
  pair.latency_seconds = link.latency_seconds;
  pair.bytes_per_second = link.bytes_per_second;
  pair.linked = true;
  pair.shortened = link.bytes_per_second < shortened_.below_bytes_per_second;
  return pair;
}

double ReductionModel::ring_seconds(int ranks, const HostPair& link, bool shortened) const {
  const double bytes_ratio = shortened ? shortened_.bytes_ratio : 1;
  const double part = static_cast<double>(bytes_.value()) * bytes_ratio / ranks;
  return 2.0 * (ranks - 1) * (link.latency_seconds + part / link.bytes_per_second);
}

double ReductionModel::slowest_link_seconds(int ranks) const {
  double slowest = 0;
  for (const LinkProfile* link : slow_links_) {
    slowest = std::max(slowest, ring_seconds(ranks, over(*link), over(*link).shortened));
  }
  return slowest;
}

ReductionModel::Host ReductionModel::host(const std::string& name) const {
  const auto own = within_.find(name);
  const auto group = group_.find(name);
  return {links_.number(name), own == within_.end() ? nullptr : &own->second,
          group == group_.end() ? -1 : group->second};
}

ReductionModel::HostPair ReductionModel::pair(const Host& a, const Host& b, bool same) const {
  const LinkProfile* link = links_.between(a.number, b.number);
  HostPair pair = link == nullptr ? HostPair{} : over(*link);
  pair.sums = same ? a.sums : nullptr;
  pair.same = same;
  pair.alone = same && a.number >= 0 && link == nullptr && a.sums == nullptr;
  pair.apart = a.group >= 0 && b.group >= 0 && a.group != b.group;
  return pair;
}

double ReductionModel::pair_seconds(int ranks, const std::string& a, const std::string& b) const {
  return pair_seconds(ranks, pair(host(a), host(b), a == b));
}

double ReductionModel::pair_seconds(int ranks, const HostPair& hosts) const {
  if (steps_across_ == 1) return every_step_seconds(ranks, hosts);
  return every_step_seconds(ranks, hosts) * (hosts.apart ? kStates / steps_across_ : 1);
}

double ReductionModel::every_step_seconds(int ranks, const HostPair& hosts) const {
  if (const auto exact = anywhere_.find(ranks); exact != anywhere_.end()) return exact->second;
  if (hosts.same) {
    if (hosts.sums != nullptr) return interpolated(*hosts.sums, ranks);
    if (hosts.linked) return ring_seconds(ranks, hosts, false);
    if (hosts.alone && anywhere_.empty()) return 0;
  } else if (hosts.linked) {
    const double seconds = ring_seconds(ranks, hosts, hosts.shortened);
    return calibration_.empty() ? seconds : seconds * nearest(calibration_, ranks);
  } else if (!across_.empty()) {
    return interpolated(across_, ranks);
  }
  if (!profile_->links.empty()) return slowest_link_seconds(ranks);
  return anywhere_.empty() ? 0 : interpolated(anywhere_, ranks);
}

/// No pair takes longer, where nothing but links decides.
double ReductionModel::most_seconds(int ranks) const {
  const bool only_links =
      profile_->reductions.empty() && steps_across_ == 1 && shortened_.bytes_ratio == 1;
  return only_links ? slowest_link_seconds(ranks) : std::numeric_limits<double>::infinity();
}

double ReductionModel::seconds(int ranks, const std::vector<std::string>& names) const {
  if (ranks < 2) return 0;
  std::vector<Host> hosts;
  for (const std::string& name : names) hosts.push_back(host(name));
  const double most = most_seconds(ranks);
  double slowest = 0;
  for (size_t i = 0; i < hosts.size() && slowest < most; ++i) {
    for (size_t j = i; j < hosts.size() && slowest < most; ++j) {
      slowest = std::max(slowest, pair_seconds(ranks, pair(hosts[i], hosts[j], i == j)));
    }
  }
  return slowest;
}

double ReductionModel::host_pair_seconds(int hosts, const HostPair& pair) const {
  if (!pair.linked) return pair_seconds(hosts, pair);
  const double seconds = ring_seconds(hosts, pair, pair.shortened) *
                         (host_calibration_.empty() ? 1 : nearest(host_calibration_, hosts));
  return pair.apart ? seconds * kStates / steps_across_ : seconds;
}

double ReductionModel::host_seconds(const std::vector<std::string>& names) const {
  std::vector<Host> hosts;
  for (const std::string& name : names) hosts.push_back(host(name));
  const auto count = static_cast<int>(names.size());
  const double most = most_seconds(count);
  double slowest = 0;
  for (size_t i = 0; i < hosts.size() && slowest < most; ++i)
    for (size_t j = i + 1; j < hosts.size() && slowest < most; ++j)
      slowest = std::max(slowest, host_pair_seconds(count, pair(hosts[i], hosts[j], false)));
  return slowest;
}

std::vector<int> ReductionModel::turns() const {
  std::vector<int> turns;
  const auto add = [&](const Points& points) {
    for (auto point = points.begin(); point != points.end(); ++point) {
      turns.push_back(point->first);
      turns.push_back(point->first + 1);
      if (point != points.begin())  // where another one is the nearest
        turns.push_back((std::prev(point)->first + point->first + 1) / 2);
    }
  };
  for (const auto& [host, points] : within_) add(points);
  for (const Points* points : {&across_, &calibration_, &anywhere_}) add(*points);
  std::sort(turns.begin(), turns.end());
  turns.erase(std::unique(turns.begin(), turns.end()), turns.end());
  return turns;
}

double busy_share(const Profile& profile) {
  double share = 0;
  for (const ReductionPoint& point : profile.reductions) share = std::max(share, point.busy_share);
  return share;
}

double reduction_spread(const Profile& profile) {
  double spread = 0;
  for (const ReductionPoint& point : profile.reductions) spread = std::max(spread, point.spread);
  return spread;
}

Bytes gradient_bytes(const JobSpec& job) {
  const bool exact = job.train.numerics == Numerics::kExact;
  return Bytes(parameter_count(job.model) * (exact ? 8 : 4));
}

int largest_micro_batch(const DeviceProfile& device, double headroom) {
  const std::vector<int> sizes = micro_batch_sizes(device, {1, false, headroom});
  return sizes.empty() ? 0 : sizes.back();
}

double solo_samples_per_second(const DeviceProfile& device, int global_batch,
                               const MicroBatchRule& rule) {
  const std::vector<int> sizes = micro_batch_sizes(device, rule);
  if (sizes.empty()) return 0;
  const double compute = best_micro_batch(device, global_batch, sizes).seconds;
  return global_batch / section_seconds(compute, device.update_seconds);
}

MicroBatchRule micro_batch_rule(const PlanRequest& request, int grain) {
  const TrainSpec& train = request.job.train;
  return {grain > 0 ? grain : train.grain.value_or(1), train.numerics == Numerics::kExact,
          request.memory_headroom, train.global_batch};
}

MicroBatchRule solo_rule(const Plan& plan, double headroom) {
  const bool exact = plan.numerics == Numerics::kExact;
  return {exact ? plan.grain : 1, exact, headroom};
}

}  // namespace motley
