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
/// Numbers of hosts that are no further from each other are bounded together.
constexpr double kTogether = 1.04;
/// What would be exchanged less than this is not looked for.
constexpr double kFineEnough = 0.999;
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

/// Of all elements.
template <class IsCounted>
double part_of_tensors(const ModelSpec& model, IsCounted is_counted) {
  double part = 0;
  for (const LogicalTensor& tensor : logical_tensors(model))
    if (is_counted(tensor)) part += static_cast<double>(tensor.elements());
  return part / static_cast<double>(parameter_count(model));
}

}  // namespace

/// A sample of a replica that goes over several hosts leaves one of them on its way forward, and
/// one on its way back.
HostSums::HostSums(const PlanRequest& request, const std::vector<DeviceGroup>& groups,
                   const PipelineCosts& costs, const LeastSums& sums, bool any_owners)
    : sums_(sums),
      samples_(request.job.train.global_batch),
      sent_(sent_in_a_second(request, groups)) {
  for (double& sent : sent_) sent /= least_activation_bytes(request, groups) * kRoundedDown;
  over_links_.push_back(0);
  for (const double sent : sent_) over_links_.push_back(over_links_.back() + sent / 2);
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
  const ModelSpec& model = request.job.model;
  ends_ = costs.ends_in_blocks();
  part_of_blocks_ = part_of_tensors(
      model, [&](const LogicalTensor& tensor) { return is_block(tensor.layers.front(), model); });
  part_of_tied_ =
      part_of_tensors(model, [](const LogicalTensor& tensor) { return tensor.layers.size() > 1; });
  const double all_seconds = sums.seconds_of_traffic(2) / static_cast<double>(sent_.size());
  blocks_seconds_ = part_of_blocks_ * all_seconds;
  tied_seconds_ = part_of_tied_ * all_seconds;
  find_everywhere(speeds, any_owners);
  // Up to where a step computes so long that nothing needs to be exchanged.
  double computed = samples_ / (over_links_.back() + everywhere_.back().speed);
  while (computed > 0 && (steps_.empty() || steps_.back().exchanged > 0)) {
    steps_.push_back({computed, least_exchanged(kFiner * computed)});
    computed *= kFiner;
  }
}

void HostSums::find_everywhere(const std::vector<double>& speeds, bool any_owners) {
  double speed = 0, block_speed = 0;
  for (size_t hosts = 0; hosts <= speeds.size(); ++hosts) {
    if (hosts > 0) {
      speed += speeds[hosts - 1];
      block_speed += block_speeds_[hosts - 1];
    }
    everywhere_.push_back(
        {.speed = speed,
         .block_speed = block_speed,
         .exchanged = sums_.seconds_of_hosts(static_cast<int>(hosts), any_owners)});
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
  return roots * roots / (samples_ + over_links_.back() * computed);
}

/// The same by who has what: to any host without everything each sample that it computes something
/// of comes over its link, or goes, in each direction, and to any without what is tied both. So
/// with the part x of the blocks it computes no more than x times what it can send, or half of
/// that, and whoever has everything x times what it can compute. Those with what is tied compute
/// all embeddings and heads besides. Those that are best come first; infinite where all are not
/// enough.
double HostSums::hosts_with_blocks(double computed, const Holders& holders) const {
  struct Kind {
    const std::vector<double>& best;
    double of_best;
    bool is_tied;
    size_t count, next = 0;
    double speed() const { return next < count ? of_best * best[next] : 0; }
  };
  Kind kinds[] = {{block_speeds_, 1, true, holders.everything},
                  {sent_, 1, true, holders.tied - holders.everything},
                  {sent_, 0.5, false, sent_.size() - holders.tied}};
  double left = samples_ / computed, with_blocks = 0;
  double left_to_tied = everywhere_[holders.tied].block_speed - ends_ * left;
  while (left > 0) {
    Kind& kind =
        *std::max_element(std::begin(kinds), std::end(kinds),
                          [](const auto& a, const auto& b) { return a.speed() < b.speed(); });
    const double best = kind.speed();
    if (best <= 0) return std::numeric_limits<double>::infinity();
    const size_t alike = std::min(alike_until_[kind.next], kind.count) - kind.next;
    double own =
        std::min(left, static_cast<double>(alike) * std::min(best, block_speeds_[kind.next]));
    if (kind.is_tied) {
      own = std::max(0.0, std::min(own, left_to_tied));
      left_to_tied -= own;
    }
    if (own > 0) with_blocks += own / best;
    left -= own;
    kind.next += alike;
  }
  return with_blocks;
}

/// Of each layer with all that have it: of blocks the part that those cannot compute alone has one
/// holder more at least, and all have as many as they have on average. With each holder more a host
/// has more to exchange, by `slope` at least.
double HostSums::exchanged_by_all_of(const Holders& holders, double computed,
                                     double with_blocks) const {
  if (holders.everything == 0) return 0;
  const Everywhere& all = everywhere_[holders.everything];
  const double others = std::max(0.0, 1 - all.block_speed * computed / samples_);
  const double more = std::max(0.0, with_blocks - static_cast<double>(holders.everything) - others);
  const double tied = everywhere_[holders.tied].exchanged - all.exchanged;
  return all.exchanged + part_of_blocks_ * (others * all.one_more + more * all.slope) +
         part_of_tied_ * tied;
}

double HostSums::exchanged_on_average(const Holders& holders, double with_blocks) const {
  return std::max(0.0, with_blocks - 1) * blocks_seconds_ +
         (static_cast<double>(holders.tied) - 1) * tied_seconds_;
}

/// By the hosts that have everything, and by what hosts exchange on average: the more of the
/// former, the fewer have each block.
double HostSums::least_exchanged(double computed) const {
  const double anyhow = hosts_with_blocks(computed);
  double least = std::numeric_limits<double>::infinity();
  for (size_t hosts = 0; hosts < everywhere_.size(); ++hosts) {
    // No more of them exchange less.
    if (everywhere_[hosts].exchanged >= least * kFineEnough)
      return std::min(least, everywhere_[hosts].exchanged);
    const double over_links = samples_ / computed - everywhere_[hosts].speed;
    if (over_links <= over_links_.back())
      least = std::min(least, least_exchanged(computed, hosts, {anyhow, over_links, least}));
  }
  return least;
}

/// A sample of a replica over several hosts is sent by two that have what is tied, or twice by one:
/// the first on its way forward, the last on its way back.
double HostSums::least_exchanged(double computed, size_t everything, const Known& known) const {
  double least = known.exchanged;
  size_t low = std::max<size_t>(1, everything), high = low;
  for (; low <= sent_.size(); low = high + 1) {
    high = std::min(sent_.size(),
                    std::max(low, static_cast<size_t>(kTogether * static_cast<double>(low))));
    if (exchanged_on_average({everything, low}, 0) >= least) break;
    if (over_links_[high] < known.over_links) continue;
    const double with_blocks =
        std::max(known.with_blocks, hosts_with_blocks(computed, {everything, high}));
    if (std::isinf(with_blocks)) continue;
    const Holders fewest{everything, low};
    least = std::min(least, std::max(exchanged_by_all_of(fewest, computed, with_blocks),
                                     exchanged_on_average(fewest, with_blocks)));
  }
  return least;
}

double HostSums::step_seconds(double computed, double exchanged) const {
  if (steps_.empty()) return sums_.step_seconds(computed, exchanged);
  double least = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < steps_.size(); ++i)
    if (i + 1 == steps_.size() || steps_[i + 1].computed > computed)
      least = std::min(least, sums_.step_seconds(std::max(computed, steps_[i].computed),
                                                 std::max(exchanged, steps_[i].exchanged)));
  return least;
}

}  // namespace motley
