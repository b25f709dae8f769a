#include "planner/pipelines/host_sums.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "core/model.h"
#include "core/spec/precisions.h"
#include "planner/pipelines/placement.h"
#include "planner/pipelines/recompute_less.h"

namespace motley {
namespace {

/// From one time to compute that is looked at to the next.
constexpr double kFiner = 1.01;
/// Times over links are added up in whole nanoseconds.
constexpr double kRoundedDown = 1 - 1e-6;

/// Bytes a second that hosts can send to others, each over its best link, falling; infinite where
/// some link was not measured.
std::vector<double> sent_in_a_second(const PlanRequest& request,
                                     const std::vector<DeviceGroup>& groups) {
  std::map<std::string, double> best;
  for (const DeviceGroup& group : groups)
    for (const DeviceSpec* device : group.devices) best[device->host];
  std::set<std::pair<std::string, std::string>> linked;
  for (const LinkProfile& link : request.profile.links) {
    const auto a = best.find(link.between[0]), b = best.find(link.between[1]);
    if (a == best.end() || b == best.end() || a == b) continue;
    linked.emplace(std::minmax(link.between[0], link.between[1]));
    for (const auto& host : {a, b}) host->second = std::max(host->second, link.bytes_per_second);
  }
  const bool are_all = linked.size() == best.size() * (best.size() - 1) / 2;
  std::vector<double> sent;
  for (const auto& [host, bytes] : best)
    sent.push_back(are_all ? bytes : std::numeric_limits<double>::infinity());
  std::sort(sent.begin(), sent.end(), std::greater<>());
  return sent;
}

/// Of a sample, from any device to any other.
double least_activation_bytes(const PlanRequest& request, const std::vector<DeviceGroup>& groups) {
  int element = std::numeric_limits<int>::max();
  for (const DeviceGroup& a : groups)
    for (const DeviceGroup& b : groups)
      element = std::min(element, reduced_bytes(carried(a.precision, b.precision)));
  return 1.0 * request.job.model.context * request.job.model.width * element;
}

double part_of_blocks(const ModelSpec& model) {
  double part = 0;
  for (const LogicalTensor& tensor : logical_tensors(model))
    if (is_block(tensor.layers.front(), model)) part += static_cast<double>(tensor.elements());
  return part / static_cast<double>(parameter_count(model));
}

}  // namespace

/// A sample of a replica that goes over several hosts leaves one of them on its way forward, and
/// one on its way back.
HostSums::HostSums(const PlanRequest& request, const std::vector<DeviceGroup>& groups,
                   const PipelineCosts& costs, const LeastSums& sums, bool any_owners)
    : samples_(request.job.train.global_batch), sent_(sent_in_a_second(request, groups)) {
  for (double& sent : sent_) sent /= least_activation_bytes(request, groups) * kRoundedDown;
  over_links_ = std::accumulate(sent_.begin(), sent_.end(), 0.0) / 2;
  std::vector<double> speeds;  // of hosts, samples in a second
  const std::vector<int> none(groups.size(), 0);
  for (const std::vector<int>& host : devices_of_hosts(groups)) {
    const double least = costs.least_seconds_sharing(none, host, request.job.train.global_batch);
    block_speeds_.push_back(costs.samples_through_blocks(host));
    speeds.push_back(least > 0                   ? samples_ / least
                     : block_speeds_.back() == 0 ? 0  // nothing is known of its devices
                                                 : std::numeric_limits<double>::infinity());
  }
  std::sort(speeds.begin(), speeds.end(), std::greater<>());
  std::sort(block_speeds_.begin(), block_speeds_.end(), std::greater<>());
  if (block_speeds_.front() <= 0) return;
  alike_until_.resize(sent_.size(), sent_.size());
  for (size_t host = sent_.size(); host-- > 1;) {
    const bool alike =
        sent_[host - 1] == sent_[host] && block_speeds_[host - 1] == block_speeds_[host];
    alike_until_[host - 1] = alike ? alike_until_[host] : host;
  }
  // Sent and received once, of all that hosts have in common but one of them.
  part_of_blocks_ = part_of_blocks(request.job.model);
  blocks_seconds_ =
      part_of_blocks_ * sums.seconds_of_traffic(2) / static_cast<double>(block_speeds_.size());
  find_everywhere(speeds, sums, any_owners);
  // Up to where a step computes so long that nothing needs to be exchanged.
  double computed = everywhere_.back().computed;
  while (computed > 0 && (steps_.empty() || steps_.back().exchanged > 0)) {
    steps_.push_back({computed, least_exchanged(kFiner * computed)});
    computed *= kFiner;
  }
}

void HostSums::find_everywhere(const std::vector<double>& speeds, const LeastSums& sums,
                               bool any_owners) {
  double speed = over_links_, block_speed = 0;
  for (size_t hosts = 0; hosts <= speeds.size(); ++hosts) {
    if (hosts > 0) {
      speed += speeds[hosts - 1];
      block_speed += block_speeds_[hosts - 1];
    }
    everywhere_.push_back(
        {.computed = samples_ / speed,
         .block_speed = block_speed,
         .exchanged = sums.seconds_of_hosts(static_cast<int>(hosts), any_owners)});
  }
  for (size_t hosts = 1; hosts < speeds.size(); ++hosts) {
    Everywhere& own = everywhere_[hosts];
    const double next = everywhere_[hosts + 1].exchanged;
    own.one_more = own.slope = std::max(0.0, next - own.exchanged);
    for (size_t more = hosts + 2; more <= speeds.size(); ++more)
      own.slope =
          std::clamp((everywhere_[more].exchanged - next) / static_cast<double>(more - hosts - 1),
                     0.0, own.slope);
    if (hosts + 1 == speeds.size()) own.slope = 0;
  }
}

/// Of all hosts at least so many have a block, on average of all blocks. With u samples through
/// what a host has of all blocks, the part x, samples go over Σ u/x hosts together, one more than
/// over links; by the inequality of Cauchy and Schwarz Σ u/x ≥ (Σ √u)² / Σ x. The sum of roots is
/// least where the fewest hosts compute all they can.
double HostSums::hosts_with_blocks(double computed) const {
  double left = samples_, roots = 0;
  for (const double speed : block_speeds_) {
    const double own = std::min(left, speed * computed);
    roots += std::sqrt(own);
    left -= own;
  }
  return roots * roots / (samples_ + over_links_ * computed);
}

/// The same where no more than `everything` hosts have everything: to any other each sample that it
/// computes something of comes over its link, or goes, in each direction. So with the part x of the
/// blocks it computes no more than x times what it can send, and whoever has everything x times
/// what it can compute. Those that are best at one or the other come first; infinite where all are
/// not enough.
double HostSums::hosts_with_blocks(double computed, size_t everything) const {
  const size_t others = sent_.size() - everything;
  double left = samples_ / computed, with_blocks = 0;
  for (size_t whole = 0, part = 0; left > 0 && whole + part < sent_.size();) {
    const bool is_whole =
        part == others || (whole < everything && block_speeds_[whole] >= sent_[part]);
    size_t& next = is_whole ? whole : part;
    const double best = is_whole ? block_speeds_[whole] : sent_[part];
    const size_t alike = std::min(alike_until_[next], is_whole ? everything : others) - next;
    const double own =
        std::min(left, static_cast<double>(alike) * std::min(best, block_speeds_[next]));
    if (own > 0) with_blocks += own / best;
    left -= own;
    next += alike;
  }
  return left > 0 ? std::numeric_limits<double>::infinity() : with_blocks;
}

/// Of each layer with all that have it: of blocks the part that those cannot compute alone has one
/// holder more at least, and all have as many as they have on average. With each holder more a host
/// has more to exchange, by `slope` at least.
double HostSums::exchanged_by_all_of(size_t hosts, double computed, double with_blocks) const {
  const Everywhere& all = everywhere_[hosts];
  const double others = std::max(0.0, 1 - all.block_speed * computed / samples_);
  const double more = std::max(0.0, with_blocks - static_cast<double>(hosts) - others);
  return all.exchanged + part_of_blocks_ * (others * all.one_more + more * all.slope);
}

/// By the hosts that have everything, and by what hosts exchange of blocks on average: the more of
/// the former, the fewer have each block.
double HostSums::least_exchanged(double computed) const {
  size_t hosts = 0;
  while (hosts + 1 < everywhere_.size() && everywhere_[hosts].computed > computed) ++hosts;
  const double anyhow = hosts_with_blocks(computed);
  double least = std::numeric_limits<double>::infinity();
  for (; hosts < everywhere_.size() && everywhere_[hosts].exchanged < least; ++hosts) {
    const double with_blocks = std::max(anyhow, hosts_with_blocks(computed, hosts));
    if (std::isinf(with_blocks)) continue;
    least = std::min(least, std::max(exchanged_by_all_of(hosts, computed, with_blocks),
                                     (with_blocks - 1) * blocks_seconds_));
  }
  return least;
}

double HostSums::step_seconds(double computed, double exchanged) const {
  if (steps_.empty()) return computed + exchanged;
  double least = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < steps_.size(); ++i)
    if (i + 1 == steps_.size() || steps_[i + 1].computed > computed)
      least = std::min(
          least, std::max(computed, steps_[i].computed) + std::max(exchanged, steps_[i].exchanged));
  return least;
}

}  // namespace motley
