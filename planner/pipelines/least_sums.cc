#include "planner/pipelines/least_sums.h"

#include <algorithm>
#include <limits>
#include <map>

#include "core/model.h"
#include "planner/costs/links.h"
#include "planner/costs/sums_beside.h"
#include "planner/plain/grain_table.h"

namespace motley {
namespace {

/// Of more hosts pairs are not looked at one by one.
constexpr size_t kManyHosts = 64;
/// Sums of parts are rounded elsewhere in another order.
constexpr double kRounded = 1 - 1e-9;
/// Rows of a block's matrices, in those of the embedding.
constexpr double kLongestRow = 4;

bool same(const ReductionModel::HostPair& a, const ReductionModel::HostPair& b) {
  return a.latency_seconds == b.latency_seconds && a.bytes_per_second == b.bytes_per_second &&
         a.sums == b.sums && a.linked == b.linked;
}

void add(const ReductionModel::HostPair& pair, std::vector<ReductionModel::HostPair>* pairs) {
  if (std::none_of(pairs->begin(), pairs->end(),
                   [&](const ReductionModel::HostPair& other) { return same(pair, other); }))
    pairs->push_back(pair);
}

}  // namespace

LeastSums::LeastSums(const PlanRequest& request, const std::vector<DeviceGroup>& groups,
                     int most_stages, bool cut)
    : profile_(&request.profile),
      reduction_(
          std::make_shared<const ReductionModel>(request.profile, gradient_bytes(request.job))),
      free_(request.job.parallel.sync.across > 1 ||
            may_compress(request.job, request.profile.links)),
      beside_(plans_with_sums_beside(request) == PlansBeside::kAll),
      cut_(cut),
      any_owners_(request.least_replicas > 1),
      most_stages_(most_stages),
      layers_(layer_count(request.job.model)) {
  const auto all = static_cast<double>(parameter_count(request.job.model));
  for (const LogicalTensor& tensor : logical_tensors(request.job.model)) {
    const double part = static_cast<double>(tensor.elements()) / all;
    if (tensor.layers.size() > 1) {
      tied_ += part;
    } else if (tensor.layers.front() == 0) {
      embedding_ += part;
    }
  }
  row_ = request.job.model.width / all;
  std::map<std::string, int> hosts;
  for (const DeviceGroup& group : groups)
    for (const DeviceSpec* device : group.devices) ++hosts[device->host];
  for (const auto& [host, devices] : hosts) {
    devices_ += devices;
    of_a_host_ = std::max(of_a_host_, devices);
  }
  hosts_ = static_cast<int>(hosts.size());
  find_pairs(hosts);
  find_hosts();
}

/// Within those that have several devices.
void LeastSums::find_pairs(const std::map<std::string, int>& hosts) {
  if (hosts.size() <= kManyHosts) {
    std::vector<ReductionModel::Host> known;
    for (const auto& [host, devices] : hosts) {
      const ReductionModel::Host own = reduction_->host(host);
      for (const ReductionModel::Host& other : known)
        add(reduction_->pair(other, own, false), &across_);
      if (devices > 1) add(reduction_->pair(own, own, true), &within_);
      known.push_back(own);
    }
    return;
  }
  if (!profile_->reductions.empty() || profile_->links.empty()) free_ = true;
  for (const bool same_host : {true, false}) {
    ReductionModel::HostPair best{
        .latency_seconds = std::numeric_limits<double>::max(), .linked = true, .same = same_host};
    for (const LinkProfile& link : profile_->links) {
      if ((link.between[0] == link.between[1]) != same_host) continue;
      best.latency_seconds = std::min(best.latency_seconds, link.latency_seconds);
      best.bytes_per_second = std::max(best.bytes_per_second, link.bytes_per_second);
    }
    if (best.bytes_per_second > 0) add(best, same_host ? &within_ : &across_);
  }
}

double LeastSums::across_seconds(int ranks) const {
  double least = kNever;
  for (const auto& pair : across_) least = std::min(least, reduction_->pair_seconds(ranks, pair));
  return least;
}

double LeastSums::whole_seconds(int ranks, int together) const {
  double least = across_seconds(ranks);
  if (std::max(ranks, together) <= of_a_host_)
    for (const auto& pair : within_) least = std::min(least, reduction_->pair_seconds(ranks, pair));
  return least == kNever ? 0 : least;
}

/// By links alone the time of as much only rises with the ranks that it is exchanged with; what was
/// measured may fall.
double LeastSums::exchange_seconds(double part, int ranks, int together) const {
  const int most = profile_->reductions.empty() ? ranks : devices_;
  double least = kNever;
  for (int peers = ranks; peers <= most; ++peers)
    least = std::min(least, part * peers / (2.0 * (peers - 1)) * whole_seconds(peers, together));
  return least == kNever ? 0 : least;
}

/// Of whole replicas by what was measured of as many ranks or more.
void LeastSums::find_hosts() {
  hosts_least_.assign(static_cast<size_t>(hosts_) + 1, 0.0);
  if (hosts_ < 2 || free_ || across_.empty()) return;
  const int most = profile_->reductions.empty() ? hosts_ : devices_;
  double least = kNever, of_ranks = kNever;
  for (int ranks = most; ranks >= 2; --ranks) {
    const double own = across_seconds(ranks);
    of_ranks = profile_->reductions.empty() ? own : std::min(of_ranks, own);
    if (ranks > hosts_) continue;
    double of_hosts = of_ranks;
    for (const auto& pair : across_)
      of_hosts = std::min(of_hosts, reduction_->host_pair_seconds(ranks, pair));
    least = std::min(least, ranks / (ranks - 1.0) * of_hosts);
    hosts_least_[static_cast<size_t>(ranks)] = least * kRounded;
  }
}

/// Each of them adds up a share of everything, of what others own sends and receives all.
double LeastSums::seconds_of_hosts(int hosts, bool any_owners) const {
  if (hosts < 2) return 0;
  return (any_owners ? 0.5 : (hosts - 1.0) / hosts) * hosts_least_[static_cast<size_t>(hosts)];
}

double LeastSums::seconds_of_traffic(double elements) const {
  return hosts_ < 2 ? 0 : elements / 2 * hosts_least_[2];
}

double LeastSums::within_one() const {
  // Of its two holders' shares, on average of those that share them.
  if (free_ || devices_ < 2) return 0;
  return exchange_seconds(2.0 / (2 + shared_by_) * tied_, 2) * kRounded;
}

double LeastSums::seconds_holding(double held, int replicas) const {
  if (replicas < 2 || free_) return 0;
  if (any_owners_) return exchange_seconds(held, replicas) * kRounded;
  // Of what the same ranks hold, of each layer at worst, owners' shares end with a row.
  const double owned = held / replicas - layers_ * kLongestRow * row_;
  return exchange_seconds(held + (replicas - 2) * std::max(0.0, owned), replicas) * kRounded;
}

double LeastSums::seconds_sharing(int replicas) const {
  if (replicas < 2 || replicas > devices_ || free_) return 0;
  const int ranks = std::min(devices_, most_stages_ * replicas);
  return exchange_seconds(2.0 * (replicas - 1) / ranks, replicas) * kRounded;
}

/// What is tied lies with as many ranks more as share it; where a shared stage is a whole replica,
/// once instead of twice, but with two devices of a host. Where too few share to share all of its
/// stages, some rank has it whole.
double LeastSums::seconds_of_tied_shared(int replicas) const {
  const int holders = cut_ ? 2 * replicas - std::min(replicas, single_stages_) : replicas;
  const int most = cut_ ? 2 * replicas : replicas;
  double tied = 2.0 * (holders - 1) / (holders + shared_by_) * tied_;
  if (shared_by_ < holders) {
    const double rows = any_owners_ ? 0 : (2 * replicas - 2) * (1 + shared_by_) * row_;
    const double whole = any_owners_ ? 1 : 2.0 * (holders - 1) / holders;
    tied = std::max(tied, whole * tied_ - rows);
  }
  return exchange_seconds(tied, holders, most) * kRounded;
}

/// Of those that hold what nobody but them does, and what is tied besides.
double LeastSums::seconds_of_embedding(int replicas, int holders) const {
  const double own = 2.0 * (replicas - 1) / replicas * embedding_;
  // Whoever owns nothing of what is tied sends it all, and receives it.
  if (any_owners_) return exchange_seconds(tied_ + own, replicas);
  // Owners' shares end with a row. Of more holders each has more to exchange, but for that.
  const auto held = [&](int of) { return 2.0 * (of - 1) / of * tied_ - (of - 2) * row_; };
  return exchange_seconds(std::min(held(holders), held(2 * replicas)), holders) +
         exchange_seconds(own, replicas);
}

double LeastSums::seconds(int replicas) const {
  if (replicas > devices_ || (cut_ && shared_by_ == 0 && 2 * replicas > devices_)) return kNever;
  if (replicas < 2 || free_) return 0;
  if (shared_by_ > 0) return std::max(seconds_sharing(replicas), seconds_of_tied_shared(replicas));
  const int holders = cut_ ? 2 * replicas : replicas;
  const double tied = 2.0 * (holders - 1) / holders * tied_;
  const double least =
      std::max(exchange_seconds(tied, holders), seconds_of_embedding(replicas, holders));
  return std::max(seconds_sharing(replicas), least * kRounded);
}

}  // namespace motley
