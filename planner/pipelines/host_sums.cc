#include "planner/pipelines/host_sums.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
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

/// Bytes a second that all hosts can send to others, each over its best link; infinite where some
/// link was not measured.
double sent_in_a_second(const PlanRequest& request, const std::vector<DeviceGroup>& groups) {
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
  if (linked.size() < best.size() * (best.size() - 1) / 2)
    return std::numeric_limits<double>::infinity();
  double sum = 0;
  for (const auto& [host, bytes] : best) sum += bytes;
  return sum;
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
    : samples_(request.job.train.global_batch) {
  over_links_ = sent_in_a_second(request, groups) /
                (2 * least_activation_bytes(request, groups) * kRoundedDown);
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
  // Sent and received once, of all that hosts have in common but one of them.
  blocks_seconds_ = part_of_blocks(request.job.model) * sums.seconds_of_traffic(2) /
                    static_cast<double>(block_speeds_.size());
  double speed = over_links_;
  for (size_t hosts = 0; hosts <= speeds.size(); ++hosts) {
    if (hosts > 0) speed += speeds[hosts - 1];
    within_.push_back(
        {samples_ / speed, sums.seconds_of_hosts(static_cast<int>(hosts), any_owners)});
  }
  // Up to where a step computes so long that nothing needs to be exchanged.
  double computed = within_.back().computed;
  while (computed > 0 && (steps_.empty() || steps_.back().exchanged > 0)) {
    steps_.push_back({computed, least_exchanged(kFiner * computed)});
    computed *= kFiner;
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

/// By the hosts that have everything, and by what hosts exchange of blocks on average.
double HostSums::least_exchanged(double computed) const {
  const auto fewest = std::find_if(within_.begin(), within_.end(),
                                   [&](const Step& within) { return within.computed <= computed; });
  const double everywhere = (fewest == within_.end() ? within_.back() : *fewest).exchanged;
  return std::max(everywhere, (hosts_with_blocks(computed) - 1) * blocks_seconds_);
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
