#include "planner/costs/step_sums.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "planner/costs/links.h"

namespace motley {
namespace {

/// What one rank or one host exchanges: seconds within a host, and between hosts.
struct Exchange {
  const std::vector<Rank>& peers;
  double within = 0, between = 0;
};
/// What an exchange takes of a step.
using Cost = std::function<double(const Exchange&)>;

class Exchanges {
 public:
  Exchanges(const PlanRequest& request, const Plan& plan, const PlanTraffic* traffic)
      : request_(request), plan_(plan), traffic_(traffic) {
    if (traffic != nullptr) return;
    for (int rank = 0; rank < plan.world_size(); ++rank) all_ranks_.emplace_back(rank);
  }

  /// Of who it costs most.
  double most(const LinkCompression& compression, const Cost& cost) const {
    const ReductionModel reduction(request_.profile, gradient_bytes(request_.job),
                                   shortened_links(compression, request_.job.model), plan_.sync);
    return traffic_ == nullptr ? of_whole(reduction, cost) : of_cut(reduction, cost);
  }

 private:
  double of_whole(const ReductionModel& reduction, const Cost& cost) const {
    const std::vector<std::string> hosts = hosts_of(plan_, all_ranks_);
    const double seconds = reduction.seconds(plan_.world_size(), hosts);
    return cost(hosts.size() > 1 ? Exchange{.peers = all_ranks_, .between = seconds}
                                 : Exchange{.peers = all_ranks_, .within = seconds});
  }

  double of_cut(const ReductionModel& reduction, const Cost& cost) const {
    const auto elements = static_cast<double>(parameter_count(request_.job.model));
    std::vector<double> of_ranks, of_hosts;  // seconds of an element, by holders
    std::vector<bool> are_between;
    for (const std::vector<Rank>& holders : traffic_->holders) {
      of_ranks.push_back(exchange_seconds(reduction, plan_, holders, elements));
      of_hosts.push_back(host_exchange_seconds(reduction, plan_, holders, elements));
      are_between.push_back(of_hosts.back() > 0);
    }
    return std::max(most_of(traffic_->ranks, of_ranks, are_between, cost),
                    most_of(traffic_->hosts, of_hosts, are_between, cost));
  }

  /// One after the other with all they hold something with.
  template <class Traffic>
  static double most_of(const std::vector<Traffic>& all, const std::vector<double>& seconds,
                        const std::vector<bool>& are_between, const Cost& cost) {
    double most = 0;
    for (const Traffic& one : all) {
      Exchange exchange{.peers = one.peers};
      for (const HeldTraffic& held : one.held_alike)
        (are_between[held.holders] ? exchange.between : exchange.within) +=
            held.elements * seconds[held.holders];
      most = std::max(most, cost(exchange));
    }
    return most;
  }

  const PlanRequest& request_;
  const Plan& plan_;
  const PlanTraffic* traffic_;
  std::vector<Rank> all_ranks_;  ///< of whole replicas
};

/// What is left of exchanges that go on beside computing.
class Beside {
 public:
  Beside(const PlanRequest& request, const Plan& plan, const RankPasses& passes)
      : passes_(passes),
        busy_share_(busy_share(request.profile)),
        first_layers_(plan.ranks.size(), 0.0) {
    const ModelSpec& model = request.job.model;
    std::map<std::pair<LayerIndex, LayerIndex>, double> parts;
    for (const ReplicaPlan& replica : plan.replicas)
      for (const StagePlan& stage : replica.stages) {
        const auto [part, is_new] = parts.try_emplace({stage.first_layer, stage.last_layer}, 0.0);
        if (is_new) part->second = part_of_first_layer(model, stage.first_layer, stage.last_layer);
        for (const Rank rank : stage.ranks) first_layers_[at(rank)] = part->second;
      }
  }

  /// `part` of the exchange are gradients.
  double of_gradients(const Exchange& exchange, double part) const {
    double last = passes_.end;
    for (const Rank rank : exchange.peers)
      last = std::max(
          last, end_with_sums(sums_of(exchange, part, rank), passes_.last_backward[at(rank)]));
    return part * exchange.within + (last - passes_.end);
  }

  /// The same of weights.
  double of_weights(const Exchange& exchange, double part) const {
    double longest = 0;
    for (const Rank rank : exchange.peers) {
      const PassTimes& forward = passes_.first_forward[at(rank)];
      longest = std::max(longest, end_with_weights(sums_of(exchange, part, rank), forward,
                                                   passes_.ready[at(rank)]) -
                                      forward.ends);
    }
    return part * exchange.within + longest;
  }

 private:
  static size_t at(Rank rank) { return static_cast<size_t>(rank.value()); }

  SumsBeside sums_of(const Exchange& exchange, double part, Rank rank) const {
    return {part * exchange.between, first_layers_[at(rank)], busy_share_};
  }

  const RankPasses& passes_;
  const double busy_share_;
  std::vector<double> first_layers_;  ///< by rank, a part of what it holds
};

}  // namespace

StepSums step_sums(const PlanRequest& request, const Plan& plan, const PlanTraffic* traffic,
                   const RankPasses* passes) {
  const Exchanges exchanges(request, plan, traffic);
  // Sharded, owners get sums of what is compressed, and send weights as they are.
  const double part = plan.shard_optimizer ? 0.5 : 1;
  const Cost whole = [part](const Exchange& exchange) {
    return part * (exchange.within + exchange.between);
  };
  StepSums sums;
  sums.all = exchanges.most(plan.compression, whole);
  if (plan.shard_optimizer)
    sums.all += plan.compression.on() ? exchanges.most({}, whole) : sums.all;
  sums.exposed = sums.all;
  if (passes == nullptr) return sums;
  const Beside beside(request, plan, *passes);
  sums.exposed = exchanges.most(plan.compression, [&](const Exchange& exchange) {
    return beside.of_gradients(exchange, part);
  });
  if (plan.shard_optimizer)
    sums.exposed += exchanges.most(
        {}, [&](const Exchange& exchange) { return beside.of_weights(exchange, part); });
  return sums;
}

}  // namespace motley
